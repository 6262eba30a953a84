"""Special tokens once, alphabets without unpickling, ids past the tokenizer."""

import json
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from model.characters import read_characters
from model.locate import CheckpointError, locate
from model.request import Prompt, RequestError
from model.tokenizer import load_tokenizer, prompt_ids, tokenizer_title, warnings
from tests.model.zoo import DATA

WORDS = {"<s>": 0, "</s>": 1, "the": 2, "cat": 3, "?": 4, "<pad>": 5}
ALPHABET = {c: n for n, c in enumerate("\n abcé")}
META = {"vocab_size": len(ALPHABET), "stoi": ALPHABET, "itos": {n: c for c, n in ALPHABET.items()}}


def folder_of(path: Path, **settings: Any) -> Path:
    """A folder with a word tokenizer that puts <s> and </s> around a text when it is asked to."""
    path.mkdir(exist_ok=True)
    inner = Tokenizer(models.WordLevel(WORDS, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(["<s>", "</s>", "<pad>"])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    inner.save(str(path / "tokenizer.json"))
    (path / "ckpt.pt").write_bytes(b"weights")
    if settings:
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def encoded(folder: Path, text: str, *, special: bool = False) -> tuple[int, ...]:
    return prompt_ids(Prompt(text), load_tokenizer(locate(str(folder)), 8), 8, 16, special=special)


@pytest.mark.parametrize("bos", ["<s>", {"content": "<s>", "lstrip": False}], ids=["text", "entry"])
@pytest.mark.parametrize(
    ("adds", "special", "text", "ids"),
    [
        (False, False, "the cat", (2, 3)),
        (False, False, "<s> the cat", (0, 2, 3)),
        (False, True, "the cat", (0, 2, 3, 1)),
        (False, True, "<s> the cat", (0, 2, 3, 1)),
        (True, False, "the cat", (0, 2, 3)),
        (True, False, "<s> the cat", (0, 2, 3)),
        (True, True, "the cat", (0, 2, 3, 1)),
        (True, True, "<s> the cat", (0, 2, 3, 1)),
        (True, True, "<s> <s> the", (0, 0, 2, 1)),
        (True, False, "the <s> cat", (0, 2, 0, 3)),
    ],
)
def test_the_first_token_comes_once_however_it_is_asked_for(
    tmp_path: Path, bos: Any, adds: bool, special: bool, text: str, ids: tuple[int, ...]
) -> None:
    folder = folder_of(tmp_path / "x", bos_token=bos, add_bos_token=adds)
    assert encoded(folder, text, special=special) == ids


def test_without_settings_nothing_is_added_and_typed_ids_go_in_as_they_are(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x")
    assert encoded(folder, "the cat") == (2, 3)
    assert encoded(folder, "the cat", special=True) == (0, 2, 3, 1)
    tokenizer = load_tokenizer(locate(str(folder_of(tmp_path / "y", bos_token="<s>", add_bos_token=True))), 8)
    assert prompt_ids(Prompt(ids=(3, 2)), tokenizer, 8, 16, special=True) == (3, 2)


def test_the_map_of_special_tokens_stands_in_for_the_settings(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", add_bos_token=True)
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "unheard of", "pad_token": 7}))
    assert load_tokenizer(locate(str(folder)), 8).special_ids == {"bos": 0}
    assert encoded(folder, "the") == (0, 2)


def test_settings_changed_on_disk_are_read_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x", bos_token="<s>", add_bos_token=False)
    assert encoded(folder, "the") == (2,)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({"bos_token": "<s>", "add_bos_token": True}))
    os.utime(settings, ns=(1, 1))
    assert encoded(folder, "the") == (0, 2)


def test_a_doubled_first_token_and_one_token_for_everything_are_warned_of(tmp_path: Path) -> None:
    apart = load_tokenizer(locate(str(folder_of(tmp_path / "x", bos_token="<s>", eos_token="</s>", pad_token="<pad>"))), 8)
    assert warnings(apart, (0, 2, 3)) == ()
    assert warnings(apart, (2, 0, 0)) == ()
    (sentence,) = warnings(apart, (0, 0, 2))
    assert "begins with 2 beginning-of-text tokens (<s>, id 0)" in sentence
    one = load_tokenizer(locate(str(folder_of(tmp_path / "y", bos_token="</s>", eos_token="</s>", pad_token="</s>"))), 8)
    (sentence,) = warnings(one, (2, 3))
    assert "are one token (id 1)" in sentence
    two = load_tokenizer(locate(str(folder_of(tmp_path / "z", bos_token="</s>", eos_token="</s>"))), 8)
    assert warnings(two, (2, 3)) == ()


def test_ids_past_the_tokenizer_are_unused(tmp_path: Path) -> None:
    words = load_tokenizer(locate(str(folder_of(tmp_path / "x"))), 64)
    assert prompt_ids(Prompt(ids=(63,)), words, 64, 16) == (63,)
    assert [words.label(token) for token in (3, 63, 2**40)] == ["cat", "⟨unused 63⟩", f"⟨unused {2**40}⟩"]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("table", [META, META | {"itos": list(ALPHABET)}, {"stoi": ALPHABET, "x": (1, None, True, ("a", "a"))}])
def test_an_alphabet_is_read_from_every_pickle_that_people_have(tmp_path: Path, table: dict[str, Any], protocol: int) -> None:
    (tmp_path / "ckpt.pt").write_bytes(b"weights")
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(table, protocol=protocol))
    tokenizer = load_tokenizer(locate(str(tmp_path)), 64)
    assert tokenizer.title == "characters, 6 entries (meta.pkl)"
    assert tokenizer.encode("é bac\n", special=True) == (5, 1, 3, 2, 4, 0)
    assert [tokenizer.label(token) for token in (0, 1, 5, 6)] == ["⏎", "·", "é", "⟨unused 6⟩"]
    assert warnings(tokenizer, (0, 0)) == ()
    with pytest.raises(RequestError, match="'z' is not among the 6"):
        tokenizer.encode("abz")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"vocab_size": 3}), "has no table 'stoi'"),
        (pickle.dumps({"stoi": {"ab": 1}}), "has no table 'stoi'"),
        (pickle.dumps({"stoi": {"a": True}}), "has no table 'stoi'"),
        (pickle.dumps({"stoi": {"a": -1}}), "has no table 'stoi'"),
        (pickle.dumps({"stoi": {}}), "has no table 'stoi'"),
        (pickle.dumps([1, 2]), "has no table 'stoi'"),
        (pickle.dumps({"stoi": Path("x")}), "STACK_GLOBAL"),
        (pickle.dumps({"stoi": Path("x")}, protocol=2), r"'GLOBAL pathlib"),
        (pickle.dumps({"stoi": {"a": 1.5}}), r"'BINFLOAT 1\.5'"),
        (pickle.dumps([[] for _ in range(2000)]), "more than 1000 tables"),
        (pickle.dumps(META)[:40], "is damaged or no meta.pkl"),
        (b"\x80\x02}h\x05.", "is damaged or no meta.pkl"),
        (b"\x80\x02u.", "is damaged or no meta.pkl"),
        (b"\x80\x02NNs.", "is damaged or no meta.pkl"),
        (b"\x80\x02}(]K\x01u.", "is damaged or no meta.pkl"),
        (b"text", "meta.pkl"),
        (b"\x80\x02}\x94(X\xff\xff\xff\xff", "is damaged or no meta.pkl"),
    ],
)
def test_any_other_pickle_is_refused_and_its_instruction_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "meta.pkl").write_bytes(content)
    with pytest.raises(CheckpointError, match=sentence):
        read_characters(tmp_path / "meta.pkl")


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 80))
def test_damage_anywhere_in_an_alphabet_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, start: int, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "meta.pkl"
    whole = pickle.dumps(META, protocol=4)
    path.write_bytes(whole[:start] + noise + whole[start + length :])
    with suppress(CheckpointError):
        assert all(isinstance(text, str) and token >= 0 for text, token in read_characters(path).items())


def test_bytes_that_a_tokenizer_spells_in_hex_are_labelled_as_text() -> None:
    tokenizer = load_tokenizer(locate(str(DATA / "ouro-real")), 256)
    assert [tokenizer.label(token) for token in tokenizer.encode("A b\né")] == ["A", "·", "b", "⏎", "\\xc3", "\\xa9"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer.json", b"{", "tokenizer.json is no tokenizer that can be read"),
        ("tokenizer.json", b"", "tokenizer.json is empty"),
        ("meta.pkl", b"x", "meta.pkl is damaged or no meta.pkl at all"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_titled_with_the_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / "ckpt.pt").write_bytes(b"x")
    assert tokenizer_title(locate(str(tmp_path)), 64) == "none: give token ids"
    assert tokenizer_title(locate(str(tmp_path)), 256).startswith("bytes")
    (tmp_path / name).write_bytes(content)
    title = tokenizer_title(locate(str(tmp_path)), 256)
    assert title.startswith(f"cannot be read, give token ids: {reason}")
    assert "\n" not in title
