"""Text <-> token ids <-> labels a person can read; no torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from tokenizers import Tokenizer as _FastTokenizer

from model.characters import read_characters
from model.files import MAX_CONFIG, MAX_TOKENIZER, check_size, check_whole, read_json, shown
from model.locate import CheckpointError, Located
from model.readable import byte_alphabet, bytes_label, unused, visible
from model.request import Prompt, RequestError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@runtime_checkable
class Tokenizer(Protocol):
    """What a checkpoint's tokenizer does."""

    @property
    def title(self) -> str:
        """What it is, in words."""
        ...

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of the special tokens ``bos``, ``eos`` and ``pad``, those that there are."""
        ...

    def encode(self, text: str, special: bool = False) -> tuple[int, ...]:
        """Ids of the text.

        Args:
            text: may spell special tokens out.
            special: add those that the tokenizer puts around a text. False adds none, unless the checkpoint's own
                settings say ``add_bos_token``; a text that begins with that token gets no second one either way.
        """
        ...

    def label(self, token: int) -> str:
        """The token's text with whitespace made visible; bytes that are no text of their own are escaped."""
        ...


@dataclass(frozen=True)
class _Bytes:
    """A token id is a byte value."""

    title: str = "bytes (a token id is a byte value)"

    @property
    def special_ids(self) -> Mapping[str, int]:
        return {}

    def encode(self, text: str, special: bool = False) -> tuple[int, ...]:
        return tuple(text.encode("utf-8"))

    def label(self, token: int) -> str:
        return bytes_label(bytes([token])) if token < 256 else unused(token)


@dataclass(frozen=True)
class _Characters:
    """A token id is a character of the alphabet that the training text had."""

    ids: Mapping[str, int]

    @property
    def title(self) -> str:
        return f"characters, {len(self.ids)} entries (meta.pkl)"

    @property
    def special_ids(self) -> Mapping[str, int]:
        return {}

    def encode(self, text: str, special: bool = False) -> tuple[int, ...]:
        strange = next((c for c in text if c not in self.ids), None)
        if strange is not None:
            raise RequestError(
                f"The character {strange!r} is not among the {len(self.ids)} that this checkpoint knows; "
                "leave it out, or give token ids instead of text."
            )
        return tuple(self.ids[c] for c in text)

    def label(self, token: int) -> str:
        return visible(self._text_of[token]) if token in self._text_of else unused(token)

    @cached_property
    def _text_of(self) -> dict[int, str]:
        return {token: text for text, token in self.ids.items()}


@dataclass(frozen=True)
class _Fast:
    """A tokenizer.json, read by the tokenizers library; ``adds_bos`` is what the settings beside it say.

    ``byte_fallback``: bytes without an entry of their own are spelled <0x0A>.
    """

    inner: _FastTokenizer
    byte_level: bool
    byte_fallback: bool
    special_ids: Mapping[str, int]
    adds_bos: bool

    @property
    def title(self) -> str:
        kind = "byte-level BPE" if self.byte_level else type(self.inner.model).__name__
        return f"{kind}, {self.inner.get_vocab_size()} entries (tokenizer.json)"

    def encode(self, text: str, special: bool = False) -> tuple[int, ...]:
        plain = tuple(self.inner.encode(text, add_special_tokens=False).ids)
        found = tuple(self.inner.encode(text, add_special_tokens=True).ids) if special else plain
        bos = self.special_ids.get("bos")
        if bos is None:
            return found
        spelled = _leading(plain, bos)  # as often as the text itself says it
        wanted = spelled or int(self.adds_bos or _leading(found, bos) > 0)
        return (bos,) * wanted + found[_leading(found, bos) :]

    def label(self, token: int) -> str:
        piece = self.inner.id_to_token(token) if token < 2**32 else None
        if piece is None:
            return unused(token)
        if self.byte_fallback and (spelled := _BYTE.fullmatch(piece)):
            return bytes_label(bytes.fromhex(spelled[1]))
        if self.byte_level and all(c in self._bytes_of for c in piece):
            return bytes_label(bytes(self._bytes_of[c] for c in piece))
        return visible(piece.replace("▁", " "))

    @cached_property
    def _bytes_of(self) -> dict[str, int]:
        return byte_alphabet()


def _leading(ids: Sequence[int], token: int) -> int:
    return next((n for n, found in enumerate(ids) if found != token), len(ids))


def load_tokenizer(located: Located, vocabulary: int) -> Tokenizer:
    """The checkpoint's own tokenizer.json or meta.pkl, else bytes for a vocabulary of 256.

    Raises CheckpointError when the file cannot be read, or there is none and the vocabulary is not 256.
    """
    if located.tokenizer is None:
        if vocabulary == 256:
            return _Bytes()
        raise CheckpointError(
            f"This checkpoint has no tokenizer.json and a vocabulary of {vocabulary}; "
            "put its tokenizer.json beside the weights, or give token ids instead of text."
        )
    paths = (located.tokenizer, *located.beside)
    return _load(paths, tuple(path.stat().st_mtime_ns for path in paths))


def tokenizer_title(located: Located, vocabulary: int) -> str:
    """What the checkpoint's tokenizer is, in words; where there is none or it cannot be read, the reason and what to do."""
    try:
        return load_tokenizer(located, vocabulary).title
    except CheckpointError as error:
        if located.tokenizer is None:
            return "none: give token ids"
        return f"cannot be read, give token ids: {error}"


@lru_cache(maxsize=8)
def _load(paths: tuple[Path, ...], changed: tuple[int, ...]) -> Tokenizer:
    path, *beside = paths
    if path.suffix == ".pkl":
        return _Characters(read_characters(path))
    check_whole(path)
    check_size(path, MAX_TOKENIZER)
    settings = {other.name: read_json(other, MAX_CONFIG) for other in beside}
    try:
        inner = _FastTokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception for every kind of damage, and panics beside it
        raise CheckpointError(f"{path.name} is no tokenizer that can be read ({shown(error)}).") from error
    own = settings.get("tokenizer_config.json", {})
    special = _special_ids(inner, settings.get("special_tokens_map.json", {}) | own)
    return _Fast(
        inner,
        byte_level="ByteLevel" in repr(inner.pre_tokenizer),
        byte_fallback=getattr(inner.model, "byte_fallback", False) is True,
        special_ids=special,
        adds_bos=own.get("add_bos_token") is True,
    )


def _special_ids(inner: _FastTokenizer, settings: Mapping[str, Any]) -> dict[str, int]:
    """Ids of the special tokens that the settings name, as text or as an entry with its text under ``content``."""
    found: dict[str, int] = {}
    for name in ("bos", "eos", "pad"):
        text: Any = settings.get(f"{name}_token")
        if isinstance(text, dict):
            text = cast("dict[str, Any]", text).get("content")
        token = inner.token_to_id(text) if isinstance(text, str) else None
        if token is not None:
            found[name] = token
    return found


def warnings(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """What is odd about the special tokens of a prompt, one sentence each; nothing is changed or refused."""
    special = tokenizer.special_ids
    found: list[str] = []
    bos = special.get("bos")
    if bos is not None and _leading(ids, bos) > 1:
        found.append(
            f"The prompt begins with {_leading(ids, bos)} beginning-of-text tokens ({tokenizer.label(bos)}, id {bos}); "
            "models are trained with one."
        )
    if len(special) == 3 and len(set(special.values())) == 1:
        found.append(f"Padding, end and beginning of text are one token (id {bos}); the model cannot tell them apart.")
    return tuple(found)


def labels(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """One label per id."""
    return tuple(tokenizer.label(token) for token in ids)


def prompt_ids(
    prompt: Prompt, tokenizer: Tokenizer | None, vocabulary: int, context: int, *, special: bool = False
) -> tuple[int, ...]:
    """Ids that go in; ``special`` as in ``Tokenizer.encode``, typed ids go in as they are.

    Raises RequestError when there are none, too many, or one is outside the vocabulary.
    """
    if prompt.ids is not None:
        ids = prompt.ids
    elif tokenizer is not None and prompt.text is not None:
        ids = tokenizer.encode(prompt.text, special)
    else:
        ids = ()
    if not ids:
        raise RequestError("The prompt has no token; type at least one character or give at least one token id.")
    if len(ids) > context:
        raise RequestError(f"The prompt has {len(ids)} tokens and the model's context is {context}; shorten the prompt.")
    if max(ids) >= vocabulary:
        raise RequestError(f"Token id {max(ids)} is outside the vocabulary of {vocabulary}; ids go from 0 to {vocabulary - 1}.")
    return ids
