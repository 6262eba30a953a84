"""Decode iterates of a live run: on demand while a token is inside a block, and all of them once it has left."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.architecture import Lens, LoopedNetwork
from model.capture.readout import ReadoutClass, decode, readouts
from model.capture.trajectory import ReadoutKey
from model.gate import GATE_LENS, gate_readouts
from model.keyvalues import KeyValues

_AT_ONCE = 64


class LiveReader:
    """Reads the iterates of the tokens that are being run, the next ones after those in the memory.

    The coda lens sends an iterate through the layers above, where earlier tokens are seen as they left them: at their
    exit, not at the same loop, which is what a post hoc run shows. At full depth the two agree in the last loop.

    Attributes:
        iterates: per block, the iterates of these tokens so far, ``1 tokens width``. ids: the tokens themselves.
    """

    def __init__(self, network: LoopedNetwork, memory: KeyValues, lenses: Sequence[Lens]) -> None:
        self._network, self._memory = network, memory
        self._lenses: tuple[Lens, ...] = tuple(lenses) if network.readable else ()
        self._device = next(network.parameters()).device
        self._kinds: dict[str, ReadoutClass] = {}
        self._features: dict[tuple[int, Lens], list[Tensor]] = {}
        self._gates: list[list[float]] = []
        self.iterates: list[list[Tensor]] = [[] for _ in network.blocks]
        self.ids: Int[Tensor, " tokens"] = torch.zeros(0, dtype=torch.int64, device=self._device)

    def begin(self, ids: Sequence[int]) -> None:
        """The next tokens; what was read of the ones before is forgotten."""
        self.ids = torch.tensor(ids, dtype=torch.int64, device=self._device)
        self.iterates = [[] for _ in self._network.blocks]
        self._features = {}
        self._gates = [[] for _ in self._network.blocks]

    def lenses(self, block: int) -> tuple[Lens, ...]:
        """The lenses that suit a block: the coda's follows the last one alone."""
        last = len(self._network.blocks) - 1
        return tuple(lens for lens in self._lenses if lens == "logit" or block == last)

    def offered(self, block: int, loops: int) -> dict[ReadoutKey, np.ndarray]:
        """Empty arrays ``loops 1`` of everything that can be read of one token at any loop.

        What needs the next token or the last loop is not among it.
        """
        found: dict[ReadoutKey, np.ndarray] = {}
        lenses = self.lenses(block)
        if lenses:
            self._learn_quantities()
            for quantity, array in self._samples.items():
                blank = -1 if array.dtype.kind == "i" else np.nan
                for lens in lenses:
                    found[lens, quantity] = np.full((loops, 1, *array.shape[2:]), blank, dtype=array.dtype)
        if self._network.gate(self._probe(self._network.state_width)) is not None:
            for quantity in ("gate_logit", "gate_probability", "exit_probability"):
                found[GATE_LENS, quantity] = np.full((loops, 1), np.nan, dtype=np.float32)
        return found

    def _learn_quantities(self) -> None:
        """Which readout makes which quantities, and of what shape: seen by making them once."""
        if self._kinds:
            return
        head, none = self._network.head, torch.full((1,), -1, device=self._device)
        self._samples: dict[str, np.ndarray] = {}
        for name, kind in readouts().items():
            if name == "kl_last" or getattr(kind, "of_next_token", False):
                continue
            made = decode(self._probe(head.weight.shape[1]).float(), head, none, quantities=[kind])
            self._kinds |= dict.fromkeys(made, kind)
            self._samples |= made

    def _probe(self, width: int) -> Float[Tensor, "1 1 width"]:
        return torch.zeros(1, 1, width, dtype=next(self._network.parameters()).dtype, device=self._device)

    def fill(self, block: int, key: ReadoutKey, array: np.ndarray) -> None:
        """Bring an array of ``offered`` up to the iterates that are there; rows that were read before are kept."""
        loops = len(self.iterates[block])
        lens, quantity = key
        if lens == GATE_LENS:
            array[:loops] = self._gate(block, len(array))[key][:loops]
            return
        known = loops - 1
        while known and _is_blank(array[known - 1]):
            known -= 1
        features = self._features_of(block, "coda" if lens == "coda" else "logit")
        first = max(known - 1, 0)  # a readout may compare a loop with the one before
        target = torch.full((1,), -1, device=self._device)
        rows = torch.stack(features[first:]).to(torch.float32)
        made = decode(rows, self._network.head, target, quantities=[self._kinds[quantity]])
        array[known:loops] = made[quantity][known - first :]

    def _features_of(self, block: int, lens: Lens) -> list[Tensor]:
        """What the head reads of each iterate so far, ``tokens width``."""
        kept = self._features.setdefault((block, lens), [])
        missing = self.iterates[block][len(kept) :]
        parts: tuple[Tensor, ...] = torch.split(torch.cat(missing), _AT_ONCE) if missing else ()
        for part in parts:
            kept += list(self._network.features_after(part, ids=self.ids, lens=lens, memory=self._memory))
        return kept

    def _gate(self, block: int, loops: int) -> Mapping[ReadoutKey, np.ndarray]:
        """Gate readouts up to the present loop, as a run of ``loops`` loops has them there."""
        states = torch.cat(self.iterates[block])
        logits = self._network.gate(states)
        assert logits is not None, "a family without gate offers none"
        padded = np.zeros((loops, states.shape[1]), dtype=np.float32)
        padded[: len(states)] = logits.float().cpu().numpy()
        return gate_readouts(padded)

    def recorded(
        self, block: int, loops: int, following: Sequence[int], kinds: Sequence[ReadoutClass]
    ) -> dict[ReadoutKey, np.ndarray]:
        """Readouts of every loop that these tokens ran, for the record; ``following`` are the next ids, -1 for none."""
        found: dict[ReadoutKey, np.ndarray] = {}
        targets, ran = torch.tensor(following, device=self._device), len(self.iterates[block])
        for lens in self.lenses(block):
            features = torch.stack(self._features_of(block, lens)).to(torch.float32)
            made = decode(features, self._network.head, targets, quantities=kinds)
            found |= {(lens, quantity): array for quantity, array in made.items()}
        if self._lenses and self._network.gate(self.iterates[block][0]) is not None:
            found |= {key: array[:ran] for key, array in self._gate(block, loops).items()}
        return found


def _is_blank(row: np.ndarray) -> bool:
    return bool((row == -1).all() if row.dtype.kind == "i" else np.isnan(row).all())
