"""Readouts against float64 truths, whatever the chunking."""

import numpy as np
import pytest
import torch
from torch import Tensor

from model.capture import readout as module
from model.capture.readout import Head, decode, decode_logits, readouts


def case(*, vocabulary: int, seed: int = 0, shrink: float = 0.6) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    tokens, width, loops = 5, 32, 12
    base = torch.randn(tokens, width)
    features = torch.stack([base + torch.randn(tokens, width) * 10.0 ** -(k * shrink) for k in range(loops)])
    return features, torch.randn(vocabulary, width), torch.randint(vocabulary, (tokens,))


def decoded(vocabulary: int, **options: float) -> tuple[dict[str, np.ndarray], Tensor, Tensor]:
    features, head, targets = case(vocabulary=vocabulary, **options)  # type: ignore[arg-type]
    found = decode(features, head, targets, quantities=list(readouts().values()))
    return found, (features.double() @ head.double().T).log_softmax(-1), targets


def exact_kl(features: Tensor, head: Tensor, before: slice, after: slice) -> np.ndarray:
    """KL in float64 with the centred form, the difference taken before the head."""
    p = (features[before].double() @ head.double().T).softmax(-1)
    d = (features[after].double() - features[before].double()) @ head.double().T
    x = d - (p * d).sum(-1, keepdim=True)
    return torch.log1p((p * (torch.expm1(x) - x)).sum(-1)).numpy()


@pytest.mark.parametrize("vocabulary", [7, 300, 4096, 9001])
def test_every_quantity_equals_float64(vocabulary: int) -> None:
    found, log_p, targets = decoded(vocabulary)
    np.testing.assert_allclose(found["entropy"], -(log_p.exp() * log_p).sum(-1).numpy(), atol=2e-5)
    wanted = log_p[:, torch.arange(len(targets)), targets].numpy()
    np.testing.assert_allclose(found["log_probability_next"], wanted, atol=2e-4)
    best, ids = log_p.topk(min(10, vocabulary), dim=-1)
    np.testing.assert_allclose(found["top10_probability"], best.exp().numpy(), atol=1e-5)
    assert (found["top10_id"][..., 0] == ids[..., 0].numpy()).mean() > 0.99


def test_tiny_divergences_keep_three_digits_and_are_never_negative() -> None:
    features, head, targets = case(vocabulary=5000)
    found = decode(features, head, targets, quantities=list(readouts().values()))
    previous = exact_kl(features, head, slice(0, -1), slice(1, None))
    assert previous.min() < 1e-8
    resolved = previous > 1e-8
    np.testing.assert_allclose(found["kl_previous"][1:][resolved], previous[resolved], rtol=1e-3)
    assert (found["kl_previous"][1:] >= 0).all()
    last = torch.stack([features[-1]] * len(features))
    wanted = exact_kl(torch.stack([features, last]).flatten(0, 1), head, slice(0, 12), slice(12, 24))
    np.testing.assert_allclose(found["kl_last"][:-1], wanted[:-1], rtol=1e-3)
    assert (found["kl_last"][-1] == 0).all()


def test_plain_float32_would_fail_this() -> None:
    """The textbook form in float32 is wrong where ours is right: the reason for the centred one."""
    features, head, _ = case(vocabulary=5000)
    log_p = (features @ head.T).log_softmax(-1)
    plain = (log_p[:-1].exp() * (log_p[:-1] - log_p[1:])).sum(-1).numpy()
    exact = exact_kl(features, head, slice(0, -1), slice(1, None))
    tiny = (exact > 1e-9) & (exact < 1e-7)
    assert np.abs(plain[tiny] / exact[tiny] - 1).max() > 0.5


def test_large_divergences_do_not_overflow() -> None:
    head = torch.eye(4) * 300.0
    features = torch.tensor([[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]]])
    found = decode(features, head, torch.tensor([1]), quantities=list(readouts().values()))
    assert found["kl_previous"][1, 0] == pytest.approx(300.0, rel=1e-6)


def test_undefined_values_are_blank() -> None:
    features, head, targets = case(vocabulary=50)
    targets[-1] = -1
    features[4:, 2] = torch.inf
    found = decode(features, head, targets, quantities=list(readouts().values()))
    assert np.isnan(found["kl_previous"][0]).all()
    assert np.isnan(found["log_probability_next"][:, -1]).all()
    for name, array in found.items():
        bad = array[4:, 2]
        assert (bad == -1).all() if name == "top10_id" else np.isnan(bad).all()
    assert np.isfinite(found["entropy"][:4]).all()
    assert np.isfinite(found["entropy"][:, 1]).all()


def test_one_loop_has_no_previous_readout() -> None:
    features, head, targets = case(vocabulary=50)
    found = decode(features[:1], head, targets, quantities=list(readouts().values()))
    assert found["kl_previous"].shape == (1, 5)
    assert np.isnan(found["kl_previous"]).all()
    assert (found["kl_last"] == 0).all()


def test_batches_of_tokens_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, head, targets = case(vocabulary=300)
    whole = decode(features, head, targets, quantities=list(readouts().values()))
    monkeypatch.setattr(module, "_CELLS", 1)
    calls: list[int] = []
    parts = decode(features, head, targets, quantities=list(readouts().values()), between=lambda: calls.append(1))
    assert len(calls) == 5
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("vocabulary", [300, 9001])
def test_many_loops_keep_five_digits_of_tiny_and_of_large_changes(vocabulary: int) -> None:
    """Most logits are sums of changes that start at an anchor: over 40 loops, settling or in a cycle, nothing adds up."""
    torch.manual_seed(1)
    base, kick = torch.randn(3, 32), torch.randn(3, 32)
    settling = torch.stack([base + kick * 0.6**k for k in range(40)])
    cycle = torch.stack([base + (-1.0) ** k * kick + 1e-3 * torch.randn(3, 32) for k in range(40)])
    head, kinds = torch.randn(vocabulary, 32) / 4, list(readouts().values())
    for features in (settling, cycle):
        found = decode(features, head, torch.tensor([1, 2, 3]), quantities=kinds)
        wanted = exact_kl(features, head, slice(0, -1), slice(1, None))
        np.testing.assert_allclose(found["kl_previous"][1:], wanted, rtol=2e-5)
        log_p = (features.double() @ head.double().T).log_softmax(-1)
        np.testing.assert_allclose(found["entropy"], -(log_p.exp() * log_p).sum(-1).numpy(), rtol=1e-5)
        np.testing.assert_allclose(found["log_probability_next"], log_p[:, [0, 1, 2], [1, 2, 3]].numpy(), rtol=1e-5)


def test_what_is_not_finite_at_one_loop_leaves_the_others_alone() -> None:
    features, head, targets = case(vocabulary=300)
    features[5, 1] = torch.nan
    features[8, 3, 4] = -torch.inf
    kinds = list(readouts().values())
    found = decode(features, head, targets, quantities=kinds)
    clean = case(vocabulary=300)[0]
    wanted = decode(clean, head, targets, quantities=kinds)
    bad = np.zeros((12, 5), dtype=bool)
    bad[5, 1] = bad[8, 3] = True
    for name in ("entropy", "log_probability_next", "top10_probability", "kl_uniform"):
        np.testing.assert_allclose(found[name][~bad], wanted[name][~bad], rtol=1e-5)
        assert np.isnan(found[name][bad]).all()


def test_a_loop_that_leaps_far_out_costs_the_loops_before_it_no_digit() -> None:
    features, head, targets = case(vocabulary=300)
    features[6] *= 1e6
    found = decode(features, head, targets, quantities=list(readouts().values()))
    log_p = (features.double() @ head.double().T).log_softmax(-1)
    others = [k for k in range(12) if k != 6]
    np.testing.assert_allclose(found["entropy"][others], -(log_p.exp() * log_p).sum(-1)[others].numpy(), rtol=1e-4, atol=1e-6)
    wanted = log_p[:, torch.arange(5), targets].numpy()
    np.testing.assert_allclose(found["log_probability_next"][others], wanted[others], rtol=1e-5)


def test_a_prediction_that_is_almost_certain_keeps_its_digits() -> None:
    head = torch.eye(300)
    features = torch.zeros(2, 1, 300)
    features[:, 0, 7] = torch.tensor([18.0, 25.0])
    found = decode(features, head, torch.tensor([7]), quantities=list(readouts().values()))
    for row, logit in enumerate((18.0, 25.0)):
        rest = 299 * np.exp(-logit)
        entropy = np.log1p(rest) + rest / (1 + rest) * logit
        assert found["entropy"][row, 0] == pytest.approx(entropy, rel=1e-6)
        assert found["log_probability_next"][row, 0] == pytest.approx(-np.log1p(rest), rel=1e-6)


def test_changes_beyond_float32_exponentials_are_exact() -> None:
    """An entry that was all but impossible becomes the likeliest: float32 has neither its probability nor its growth."""
    head, features = torch.eye(3), torch.tensor([[[120.0, 0.0, 1.0]], [[0.0, 120.0, 1.0]]])
    found = decode(features, head, torch.tensor([0]), quantities=list(readouts().values()))
    assert found["kl_previous"][1, 0] == pytest.approx(120.0, rel=1e-6)
    assert found["kl_reverse"][1, 0] == pytest.approx(120.0, rel=1e-6)


def test_registry_contract() -> None:
    found = readouts()
    always = {name for name, kind in found.items() if kind.always}
    assert always == {"entropy", "kl_previous", "kl_last", "log_probability_next", "top10"}
    assert set(found) - always == {"kl_reverse", "kl_uniform", "min_p_kl"}
    for kind in found.values():
        assert kind.__doc__
        assert kind.title
        assert kind.first_loop >= 1


def exact_logits(features: Tensor, head: Head) -> Tensor:
    raw = features.double() @ head.weight.double().T
    raw = raw if head.bias is None else raw + head.bias.double()
    return raw if head.softcap is None else head.softcap * torch.tanh(raw / head.softcap)


def exact_head_kl(features: Tensor, head: Head, before: slice, after: slice) -> np.ndarray:
    """KL in float64 through the whole head; the differences are of float64 logits, so they hold down to 1e-28."""
    a, b = exact_logits(features[before], head), exact_logits(features[after], head)
    p, d = a.softmax(-1), b - a
    x = d - (p * d).sum(-1, keepdim=True)
    return torch.log1p((p * (x * x * (1 / 2 + x / 6 + x * x / 24))).sum(-1)).numpy()


@pytest.mark.parametrize("softcap", [None, 5.0, 30.0])
@pytest.mark.parametrize("vocabulary", [300, 5000])
def test_bias_and_soft_cap_keep_tiny_divergences(softcap: float | None, vocabulary: int) -> None:
    features, weight, targets = case(vocabulary=vocabulary)
    head = Head(weight, bias=3 * torch.randn(vocabulary), softcap=softcap)
    found = decode(features, head, targets, quantities=list(readouts().values()))
    log_p = exact_logits(features, head).log_softmax(-1)
    np.testing.assert_allclose(found["entropy"], -(log_p.exp() * log_p).sum(-1).numpy(), atol=2e-5)
    wanted = exact_head_kl(features, head, slice(0, -1), slice(1, None))
    small = (wanted > 1e-10) & (wanted < 1e-5)  # the oracle's series is for small changes
    assert wanted[small].min() < 1e-9
    np.testing.assert_allclose(found["kl_previous"][1:][small], wanted[small], rtol=1e-3)
    last = torch.cat([features, features[-1:].expand_as(features)])
    wanted = exact_head_kl(last, head, slice(0, 12), slice(12, 24))
    small = (wanted > 1e-10) & (wanted < 1e-5)
    assert small.sum() > 10
    np.testing.assert_allclose(found["kl_last"][small], wanted[small], rtol=1e-3)
    assert (found["kl_last"][-1] == 0).all()


def test_the_heads_logits_are_the_plain_formula_in_the_dtype_of_the_features() -> None:
    features, weight, _ = case(vocabulary=50)
    bias = torch.randn(50)
    wanted = 7.0 * torch.tanh((features @ weight.T + bias) / 7.0)
    torch.testing.assert_close(Head(weight, bias, softcap=7.0).logits(features), wanted)
    half = Head(weight.bfloat16(), bias.bfloat16(), softcap=7.0).logits(features.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(Head(weight).logits(features), features @ weight.T)


def test_a_tensor_as_head_is_a_weight_alone() -> None:
    features, weight, targets = case(vocabulary=50)
    kinds = list(readouts().values())
    plain = decode(features, weight, targets, quantities=kinds)
    headed = decode(features, Head(weight), targets, quantities=kinds)
    assert all(np.array_equal(plain[name], headed[name], equal_nan=True) for name in plain)


def test_a_soft_cap_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Head(torch.randn(3, 2), softcap=0.0)


@pytest.mark.parametrize("vocabulary", [300, 5000])
def test_given_logits_are_read_out_like_features_and_head(vocabulary: int) -> None:
    features, weight, targets = case(vocabulary=vocabulary, shrink=0.3)
    targets[-1] = -1
    head, kinds = Head(weight, bias=torch.randn(vocabulary), softcap=20.0), list(readouts().values())
    logits = exact_logits(features, head)
    wanted = decode(features, head, targets, quantities=kinds)
    for given in (logits, logits.float()):
        asked: list[slice] = []

        def logits_at(some: slice, given: Tensor = given, asked: list[slice] = asked) -> Tensor:
            asked.append(some)
            return given[:, some]

        found = decode_logits(logits_at, targets, at_once=2, quantities=kinds)
        assert asked == [slice(0, 2), slice(2, 4), slice(4, 5)]
        assert found.keys() == wanted.keys()
        for name in set(found) - {"top10_id"}:
            # Min-p compares rounded log-probabilities, the other divergences exact changes of the features.
            resolved = np.isnan(wanted[name]) | (np.abs(wanted[name]) > (1e-7 if name.startswith("min_p") else 1e-9))
            np.testing.assert_allclose(
                found[name][resolved], wanted[name][resolved], rtol=1e-3, atol=1e-5 * (name == "entropy")
            )
        assert (found["top10_id"] == wanted["top10_id"]).mean() > 0.99


def test_entries_that_are_never_said_and_states_that_are_no_numbers() -> None:
    logits = torch.randn(3, 2, 6)
    logits[..., 4] = -torch.inf
    logits[1:, 1] = torch.nan
    found = decode_logits(lambda some: logits[:, some], torch.tensor([1, 2]), at_once=9, quantities=list(readouts().values()))
    part = logits[:, 0, [0, 1, 2, 3, 5]].double().log_softmax(-1)
    np.testing.assert_allclose(found["entropy"][:, 0], -(part.exp() * part).sum(-1).numpy(), rtol=1e-6)
    wanted = (part[:-1].exp() * (part[:-1] - part[1:])).sum(-1).numpy()
    np.testing.assert_allclose(found["kl_previous"][1:, 0], wanted, rtol=1e-5)
    assert np.isfinite(found["entropy"][0]).all()
    assert np.isnan(found["entropy"][1:, 1]).all()
