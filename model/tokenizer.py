"""Text <-> token ids <-> labels a person can read; no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from tokenizers import Tokenizer as _FastTokenizer
from tokenizers import pre_tokenizers

from model.locate import CheckpointError, Located
from model.request import Prompt, RequestError

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


@runtime_checkable
class Tokenizer(Protocol):
    """What a checkpoint's tokenizer does."""

    @property
    def title(self) -> str:
        """What it is, in words."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the text; no special tokens are added."""
        ...

    def label(self, token: int) -> str:
        """The token's text with whitespace made visible; bytes that are no text of their own are escaped."""
        ...


def visible(text: str) -> str:
    r"""Whitespace as visible characters, other control characters escaped: " a\n" -> "·a⏎"."""
    shown = "".join(_VISIBLE.get(c, c) for c in text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


@dataclass(frozen=True)
class _Bytes:
    """A token id is a byte value."""

    title: str = "bytes (a token id is a byte value)"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode("utf-8"))

    def label(self, token: int) -> str:
        return _label_bytes(bytes([token])) if token < 256 else f"⟨unused {token}⟩"


@dataclass(frozen=True)
class _Fast:
    """A tokenizer.json, read by the tokenizers library."""

    inner: _FastTokenizer
    byte_level: bool

    @property
    def title(self) -> str:
        kind = "byte-level BPE" if self.byte_level else type(self.inner.model).__name__
        return f"{kind}, {self.inner.get_vocab_size()} entries (tokenizer.json)"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.inner.encode(text, add_special_tokens=False).ids)

    def label(self, token: int) -> str:
        piece = self.inner.id_to_token(token)
        if piece is None:
            return f"⟨unused {token}⟩"
        if self.byte_level and all(c in self._bytes_of for c in piece):
            return _label_bytes(bytes(self._bytes_of[c] for c in piece))
        return visible(piece.replace("▁", " "))

    @cached_property
    def _bytes_of(self) -> dict[str, int]:
        return _byte_alphabet()


def _label_bytes(raw: bytes) -> str:
    try:
        return visible(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return visible(raw.decode("utf-8", errors="backslashreplace"))


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Character of the byte-level alphabet -> byte, found by encoding every byte that is a character of its own.

    The alphabet keeps printable Latin-1 bytes as they are and lifts the others, in order, to U+0100 and up.
    """
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    kept = {chr(b): b for b in range(256) if chr(b) in alphabet}
    lifted = sorted(alphabet - set(kept))
    rest = [b for b in range(256) if b not in kept.values()]
    return kept | dict(zip(lifted, rest, strict=True))


def load_tokenizer(located: Located, vocabulary: int) -> Tokenizer:
    """The checkpoint's own tokenizer.json, else bytes for a vocabulary of 256.

    Raises CheckpointError when the file cannot be read, or there is none and the vocabulary is not 256.
    """
    if located.tokenizer is None:
        if vocabulary == 256:
            return _Bytes()
        raise CheckpointError(
            f"This checkpoint has no tokenizer.json and a vocabulary of {vocabulary}; "
            "put its tokenizer.json beside the weights, or give token ids instead of text."
        )
    path = located.tokenizer
    return _load_fast(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _load_fast(path: Path, changed: int) -> Tokenizer:
    try:
        inner = _FastTokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for every kind of damage
        raise CheckpointError(f"{path.name} is no tokenizer that can be read ({error}).") from error
    return _Fast(inner, byte_level="ByteLevel" in repr(inner.pre_tokenizer))


def labels(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """One label per id."""
    return tuple(tokenizer.label(token) for token in ids)


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer | None, vocabulary: int, context: int) -> tuple[int, ...]:
    """Ids that go in. Raises RequestError when there are none, too many, or one is outside the vocabulary."""
    if prompt.ids is not None:
        ids = prompt.ids
    elif tokenizer is not None and prompt.text is not None:
        ids = tokenizer.encode(prompt.text)
    else:
        ids = ()
    if not ids:
        raise RequestError("The prompt has no token; type at least one character or give at least one token id.")
    if len(ids) > context:
        raise RequestError(f"The prompt has {len(ids)} tokens and the model's context is {context}; shorten the prompt.")
    if max(ids) >= vocabulary:
        raise RequestError(f"Token id {max(ids)} is outside the vocabulary of {vocabulary}; ids go from 0 to {vocabulary - 1}.")
    return ids
