"""Where a run's numbers come from, as its provenance says it."""

import platform
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from importlib.metadata import version

import numpy as np
import torch

from model.capture.trajectory import Mode, Provenance
from model.checkpoint import Loaded
from model.locate import canonical
from model.noise import words
from model.request import Request

_FLOORS = {"float32": 1e-6, "bfloat16": 6e-2, "float16": 8e-3}


def origin(
    loaded: Loaded,
    request: Request,
    digest: str,
    *,
    started: AbstractSet[int],
    mode: Mode = "post hoc",
    decoding: Mapping[str, str] | None = None,
) -> Provenance:
    """Provenance of a run of a request; ``started`` are the blocks that asked for an initial state."""
    family, network = loaded.architecture, loaded.network
    skipped = [block.name for g, block in enumerate(network.blocks) if g not in started]
    start = words(request.initial_state, family.initial_rule(loaded.config).words())
    if network.fixed_start:
        start = "the block's own input"
    elif len(skipped) == len(network.blocks):
        start = "the block's entry: one loop is a plain pass in this family, without initial state or injection"
    elif skipped:
        start += f"; {', '.join(skipped)}: one loop, a plain pass from the block's entry"
    return Provenance(
        checkpoint=canonical(request.checkpoint),
        digest=digest,
        architecture=family.name,
        space=family.space,
        dtype=request.dtype,
        device=request.device,
        seed=request.seed,
        initial_state=start,
        loops_trained=family.loops_trained(loaded.config),
        noise_floor=_FLOORS[request.dtype],
        mode=mode,
        versions={
            "loopscope": version("loopscope"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        decoding=decoding or {},
    )
