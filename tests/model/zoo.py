"""The reference checkpoints in tests/data; not collected by pytest."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True)
class Reference:
    """A checkpoint folder with golden arrays."""

    folder: str
    family: str

    @property
    def path(self) -> str:
        """Where it lies."""
        return str(DATA / self.folder)

    @property
    def golden(self) -> dict[str, np.ndarray]:
        """Arrays of the reference implementation."""
        with np.load(DATA / self.folder / "golden.npz", allow_pickle=False) as arrays:
            return dict(arrays)


NATIVE = (
    Reference("latent_ttc-concat", "latent_ttc"),
    Reference("latent_ttc-plain", "latent_ttc"),
    Reference("huginn-tiny", "huginn"),
    Reference("huginn-real", "huginn"),
    Reference("ouro-tiny", "ouro"),
    Reference("ouro-real", "ouro"),
    Reference("retrofit-llama-tiny", "retrofit_llama"),
    Reference("retrofit-olmo-tiny", "retrofit_olmo"),
    Reference("parcae-tiny", "parcae"),
    Reference("nanoloop-real", "nanoloop"),
)
TRAINED = tuple(reference for reference in NATIVE if reference.folder.endswith("-real"))


def named(reference: Reference) -> str:
    """The folder, as the name of a test case."""
    return reference.folder
