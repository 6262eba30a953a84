"""What the accurate KL of all iterates costs: against the one matrix product that nothing can do without, against decoding
iterate by iterate, and in memory. Medians of interleaved rounds in one process."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import statistics

import pytest
import torch
from torch import Tensor

from model.capture.readout import decode, readouts
from tests.benchmarks.test_capture import ROUNDS, say, timed

VOCABULARY, WIDTH, LOOPS = 50_000, 512, 33
KL = [readouts()["kl_previous"]]


def converging(tokens: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features that settle by a factor of 0.6 per loop, a head, and targets."""
    torch.manual_seed(0)
    last = 3 * torch.randn(tokens, WIDTH)
    features = torch.stack([last + torch.randn(tokens, WIDTH) * 0.6**k for k in range(LOOPS)])
    return features, torch.randn(vocabulary, WIDTH) * WIDTH**-0.5, torch.zeros(tokens, dtype=torch.long)


@pytest.mark.parametrize("tokens", [4, 16])
def test_kl_of_all_iterates_over_one_matrix_product_and_over_iterate_by_iterate(tokens: int) -> None:
    features, head, targets = converging(tokens, VOCABULARY)

    def product() -> None:
        torch.matmul(features.flatten(0, 1), head.T)

    def together() -> None:
        decode(features, head, targets, quantities=KL)

    def one_by_one() -> None:
        for k in range(1, LOOPS):
            decode(features[k - 1 : k + 1], head, targets, quantities=KL)

    with torch.inference_mode():
        for warm in (product, together, one_by_one):
            warm()
        rounds = [(timed(together), timed(product), timed(one_by_one)) for _ in range(ROUNDS)]
    over_product = statistics.median(a / b for a, b, _ in rounds)
    gain = statistics.median(c / a for a, _, c in rounds)
    say(f"KL of {LOOPS} iterates, {tokens} tokens: x{over_product:.2f} of one product, x{gain:.2f} faster than one by one")
    assert over_product < 2.5
    assert gain > 1.5


def test_memory_of_the_kl_does_not_grow_with_the_vocabulary() -> None:
    peaks: list[int] = []
    for vocabulary in (16_384, 131_072):
        features, head, targets = converging(4, vocabulary)
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        with torch.inference_mode(), profiler as profile:
            decode(features, head, targets, quantities=KL)
        held, peak = 0, 0
        for event in profile.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
            if event.name() == "[memory]":
                held += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue] - typed in part only
                peak = max(peak, held)
        peaks.append(peak)
    say(f"peak of the KL: {peaks[0] / 2**20:.1f} MiB at 16k entries, {peaks[1] / 2**20:.1f} MiB at 131k")
    assert peaks[1] < 1.1 * peaks[0]
