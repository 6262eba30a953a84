"""Looks: fixed per rule, apart from each other in grey, spread early on the loop scale."""

import itertools

import numpy as np
import pytest

from analysis.chart import Role
from analysis.draw import layout, theme
from analysis.exit_rule import default_rules, exit_rules


def test_every_registered_rule_has_a_look_of_its_own() -> None:
    looks = {name: theme.look(Role("rule", name=name), "light") for name in exit_rules()}
    for one, other in itertools.combinations(looks.values(), 2):
        assert (one.marker, one.dash) != (other.marker, other.dash), "told apart in greyscale"
    for one, other in itertools.combinations([looks[name] for name in default_rules()], 2):
        assert one.colour != other.colour
        assert one.marker != other.marker
        assert one.dash != other.dash


def test_the_looks_of_the_papers_rules_are_settled() -> None:
    vermillion, blue, orange = (theme.OKABE_ITO[name] for name in ("vermillion", "blue", "orange"))
    assert theme.look(Role("rule", name="acceleration"), "light") == theme.Look(vermillion, "diamond", "solid")
    assert theme.look(Role("rule", name="kl"), "light") == theme.Look(blue, "plus", "dash")
    assert theme.look(Role("rule", name="step_norm"), "light") == theme.Look(orange, "cross", "dot")


def test_a_family_of_rules_shares_a_colour_of_its_own() -> None:
    colours: dict[str, set[str]] = {}
    for name, kind in exit_rules().items():
        colours.setdefault(kind.family, set()).add(theme.look(Role("rule", name=name), "paper").colour)
    assert all(len(found) == 1 for found in colours.values())
    every = sorted(colour for found in colours.values() for colour in found)
    assert len(set(every)) == len(colours)
    for colour in every:  # lines on white and on the dark page
        for surface in ("light", "dark"):
            bright, dark = sorted((theme.brightness(colour), theme.brightness(theme.PAINTS[surface].paper)), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) > 1.8


def test_a_rule_of_ones_own_takes_a_look_that_no_other_has() -> None:
    taken = {(look.marker, look.dash) for look in theme.rule_looks().values()}
    stranger = theme.look(Role("rule", name="unheard_of"), "light")
    assert (stranger.marker, stranger.dash) not in taken


@pytest.mark.parametrize("name", ["step_norm", "kl", "acceleration", "unheard_of"])
def test_a_rule_looks_the_same_on_every_surface(name: str) -> None:
    assert len({theme.look(Role("rule", name=name), surface) for surface in ("light", "dark", "paper")}) == 1


def test_series_are_apart_in_grey() -> None:
    for surface in ("light", "dark", "paper"):
        grey = [theme.brightness(theme.look(Role("series", index=i, of=6), surface).colour) for i in range(6)]
        assert all(abs(a - b) > 0.02 for a, b in itertools.pairwise(grey))
        assert grey == sorted(grey, reverse=surface != "dark")


def test_cell_text_is_readable_on_the_probability_scale() -> None:
    for surface in ("light", "dark", "paper"):
        ink = theme.brightness(theme.PAINTS[surface].ink)
        for colour in theme.palette("probability", surface):
            bright, dark = sorted((ink, theme.brightness(colour)), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_early_loops_take_more_of_the_scale() -> None:
    shade = theme.loop_shade(np.arange(33.0), 32.0)
    assert shade[0] == 0.0
    assert shade[-1] == 1.0
    assert shade[1] > 5 * (shade[32] - shade[31])
    assert theme.loop_ticks(32.0)[:4] == (0, 1, 2, 4)
    assert theme.loop_ticks(32.0)[-1] == 32


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.0, 8.0), (1.0, 16.0), (1.0, 128.0), (0.0, 1024.0)])
def test_whole_ticks_are_few_and_whole(low: float, high: float) -> None:
    ticks = layout.whole_ticks(low, high, most=9)
    assert 1 <= len(ticks) <= 11
    assert all(low <= tick <= high for tick in ticks)


def test_log_ticks_speak_one_language() -> None:
    assert layout.log_words(layout.log_ticks(1e-6, 1.0)) == ("10⁻⁶", "10⁻⁴", "10⁻²", "10⁰")
    assert layout.log_words((0.01, 1.0)) == ("0.01", "1")
    assert layout.log_words((1e-5, 1.0)) == ("10⁻⁵", "10⁰")
    assert len(layout.log_ticks(22.0, 70.0)) >= 2


def test_bands_on_log_axes_stay_above_zero() -> None:
    from analysis.chart import Band

    band = Band(np.arange(3.0), np.array([0.0, 0.5, np.nan]), np.array([1.0, 2.0, 3.0]), {}, Role("ink"))
    lower, upper = layout.above_zero(band)
    assert lower[0] == 0.5
    assert np.isnan(lower[2])
    assert upper.tolist() == [1.0, 2.0, 3.0]


def test_cell_edges_meet_half_way() -> None:
    assert layout.cell_edges(np.array([1.0, 2.0, 4.0])).tolist() == [0.5, 1.5, 3.0, 5.0]
    assert layout.cell_edges(np.array([3.0])).tolist() == [2.5, 3.5]


def test_lines_break_at_spaces_only() -> None:
    assert layout.broken("one two three", lambda line: len(line) <= 7) == "one two\nthree"
    assert layout.broken("unbreakable", lambda line: len(line) <= 3) == "unbreakable"
