"""What a live run writes beside the text at full depth: labels, loops, and where the two part."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.written import written, written_columns, written_words
from model.capture.trajectory import Trajectory
from model.request import RequestError
from tests.toys import toy_trajectory


def wrote(*words: str, after: int = 2) -> Trajectory:
    """A run of ``after`` prompt tokens and these words; equal words have equal ids."""
    labels = (*(f"p{i}" for i in range(after)), *words)
    made = toy_trajectory(tokens=len(labels), loops=4, labels=labels)
    ids = np.array([sum(map(ord, label)) for label in labels], dtype=np.int64)
    ran = tuple(replace(block, loops_run=np.arange(len(labels)) % 4 + 1) for block in made.blocks)
    return replace(made, token_ids=ids, blocks=ran)


def test_the_first_token_that_differs_is_named_with_both_texts() -> None:
    found = written(wrote("·a", "·red", "·cap"), wrote("·a", "·big", "·cap"), given=2)
    assert found.differ == 3
    words = written_words(found)
    assert "“a red cap”" in words
    assert "“a big cap”" in words
    assert "part at token 3: “·red” with exits, “·big” at full depth" in words
    columns = written_columns(found)
    assert columns["position"] == ["2", "3", "4"]
    assert columns["with exits"] == ["·a", "·red", "·cap"]
    assert columns["at full depth"] == ["·a", "·big", "·cap"]
    assert columns["loops h[1]"] == ["3", "4", "1"]


def test_equal_texts_and_a_part_of_one_are_told_apart() -> None:
    whole = written(wrote("·a", "·b"), wrote("·a", "·b"), given=2)
    assert whole.differ is None
    assert written_words(whole) == "With exits: “a b”. The text at full depth is the same."
    part = written(wrote("·a"), wrote("·a", "·b"), given=2)
    assert part.differ is None
    assert "the same in its first 1 token." in written_words(part)
    assert written_columns(part)["loops h[1]"] == ["3", ""]
    none = written(wrote(), wrote("·a"), given=2)
    assert "same" not in written_words(none)


def test_tokens_with_one_label_and_other_ids_differ() -> None:
    ours = wrote("x")
    other = replace(ours, token_ids=np.array([*ours.token_ids[:2], 7], dtype=np.int64))
    assert written(ours, other, given=2).differ == 2


def test_runs_of_other_prompts_are_refused() -> None:
    with pytest.raises(RequestError, match="same prompt"):
        written(wrote("a"), replace(wrote("a"), token_ids=np.array([1, 2, 3], dtype=np.int64)), given=2)
