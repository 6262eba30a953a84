"""What record() refuses: whatever is not one full pass of the looped blocks over one prompt, and options that do not fit."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# (lambdas for torch, which has no types for them)

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.capture import CaptureError, record
from tests.model.own_modules import IDS, WIDTH, Listed, Model, X, both, linear


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


class Called(nn.Module):
    """Calls its blocks as ``how`` says."""

    def __init__(self, how: Callable[["Called", Tensor], object]) -> None:
        super().__init__()
        self.first, self.second, self.how = linear(), linear(), how

    def forward(self, x: Tensor) -> None:
        self.how(self, x)


REFUSED: dict[str, tuple[Callable[[Called, Tensor], object], Any, str]] = {
    "forward": (lambda m, x: m.first.forward(x), "first", "not block.forward"),
    "path": (lambda m, x: m.first(x), "frist", "near names are first"),
    "deep path": (lambda m, x: m.first(x), "model.first", "near names are .*first"),
    "no block": (lambda m, x: m.first(x), [], "No looped block"),
    "same twice": (lambda m, x: m.first(x), ["first", "first"], "one and the same"),
    "turns": (lambda m, x: m.first(m.second(m.first(x))), ["first", "second"], "take turns"),
    "order": (lambda m, x: m.first(m.second(x)), ["first", "second"], "order in which they run"),
    "shapes": (lambda m, x: (m.first(x), m.first(x[:, :1])), "first", "no generation"),
    "empty": (lambda m, x: m.first(x[:, :0]), "first", "empty prompt"),
    "vector": (lambda m, x: m.first(x[0, 0]), "first", r"shape \[4\]"),
    "one silent": (lambda m, x: m.first(x), ["first", "second"], "no call of block 'second'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_single_full_pass_is_refused(case: str) -> None:
    how, block, words = REFUSED[case]
    whole = Called(how)
    with pytest.raises(CaptureError, match=words):
        record(whole, block, run=lambda: whole(X))


def test_two_passes_in_one_run_are_refused(model: Model) -> None:
    with pytest.raises(CaptureError, match="called the model 2 times"):
        record(model, "loop_a", run=lambda: (model(IDS), model(IDS)))


def test_lists_that_do_not_tell_where_a_loop_ends_are_refused() -> None:
    a, b = linear(), linear()
    for layers, words in (([a, b, a], "where a loop ends"), ([], "empty ModuleList")):
        whole = Listed(layers, 1)
        with pytest.raises(CaptureError, match=words):
            record(whole, "h", run=lambda whole=whole: whole(X))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loops": (6, 5)}, r"\[6, 4\] loops ran and \[6, 5\] were asked for"),
        ({"loops": (6,)}, "give 1 or 2"),
        ({"tokens": [1, 2]}, "2 tokens were given and the block ran over 7"),
        ({"tokens": [-1] * 7}, "negative"),
        ({"labels": ["a"]}, "1 labels were given for 7"),
        ({"every": 0}, "every=0"),
        ({"positions": (3, 3)}, "start < stop"),
        ({"positions": (9, 12)}, "behind the 7 tokens"),
        ({"entry": [None]}, "each of the 2 blocks"),
        ({"initial_state": [torch.ones(2, WIDTH), None]}, r"shape \[2, 16\]"),
        ({"decode": {"tuned": lambda x: x}}, "logit and coda"),
        ({"decode": lambda x: x[0]}, "expected logits of shape"),
        ({"decode": lambda x: (x, x)}, "returned tuple"),
    ],
)
def test_options_that_do_not_fit_are_refused(model: Model, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        both(model, **options)


def test_a_coda_under_the_name_of_the_logit_lens_is_refused(model: Model) -> None:
    with pytest.raises(CaptureError, match="mixes tokens"):
        both(model, decode=model.rest)


@pytest.mark.parametrize("returned", [lambda y: y, lambda y: (y, None), lambda y: {"logits": y}, lambda y: y[:, -1:]])
def test_a_coda_that_is_not_what_the_model_says_is_refused(model: Model, returned: Callable[[Tensor], Any]) -> None:
    def run() -> Any:
        return returned(model(IDS))

    blocks = ["loop_a", "loop_b"]
    assert record(model, blocks, run=run, decode={"coda": model.rest}).blocks[1].readouts
    with pytest.raises(CaptureError, match="not what the model said"):
        record(model, blocks, run=run, decode={"coda": lambda x: model.rest(model.norm(x))})
    twice = {"coda": lambda x: 2 * model.rest(x)}
    assert record(model, blocks, run=lambda: model(IDS).mean(), decode=twice).blocks[1].readouts


def test_loops_that_ran_as_asked_are_taken(model: Model) -> None:
    assert [block.loops for block in both(model, loops=(6, 4)).blocks] == [6, 4]


def test_a_block_that_is_handed_another_width_needs_its_initial_state() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.adapter = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> None:
            state = x
            for _ in range(3):
                state = self.adapter(torch.cat([x, state], dim=-1))

    wide = Wide()
    with pytest.raises(CaptureError, match="give initial_state="):
        record(wide, "adapter", run=lambda: wide(X))
    found = record(wide, "adapter", run=lambda: wide(X), entry=X, initial_state=X).blocks[0]
    assert found.loops == 3


@pytest.mark.slow
def test_a_compiled_model_is_recorded_before_or_forced_eager_and_never_wrongly(model: Model) -> None:
    wanted = both(model.eval())
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(IDS)
    with pytest.raises(CaptureError, match="force_eager"):
        record(model, ["loop_a", "loop_b"], run=lambda: compiled(IDS))
    with torch.compiler.set_stance("force_eager"):
        found = record(compiled, ["loop_a", "loop_b"], run=lambda: compiled(IDS))  # type: ignore[arg-type]
    assert np.array_equal(found.blocks[1].states, wanted.blocks[1].states)
    assert found.provenance.architecture == "Model"


@pytest.mark.parametrize(
    ("decode", "words"), [(nn.Linear(WIDTH + 1, 5), "failed on states of shape"), (lambda x: len(x), "returned int")]
)
def test_a_decode_that_does_not_fit_the_states_is_one_sentence(model: Model, decode: Any, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        record(model, "loop_a", run=lambda: model(IDS), decode=decode)


def test_a_block_of_another_model_is_one_sentence(model: Model) -> None:
    with pytest.raises(CaptureError, match="is no part of the Model"):
        record(model, linear(), run=lambda: model(IDS))


_UNCHECKED = """
import torch
from loopscope import CaptureError, record

block = torch.nn.Linear(4, 4)
for module, decode in (("m", None), (torch.nn.Sequential(block), "h")):
    try:
        record(module, "0", run=lambda: module(torch.ones(1, 3, 4)), decode=decode)
    except CaptureError as error:
        print(error)
"""


def test_arguments_of_another_kind_are_one_sentence_where_no_types_are_checked() -> None:
    found = subprocess.run([sys.executable, "-c", _UNCHECKED], check=True, capture_output=True, text=True).stdout
    assert "given a str; the first argument is the module" in found
    assert "decode (logit lens) is 'h'; give a function from states to logits" in found
