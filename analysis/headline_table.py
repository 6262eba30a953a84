"""The headline's measurements as rows: per model, rule and budget the loops, quality and time, as CSV and as README tables."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float64

from analysis.bootstrap import interval, resampled_means, resamples
from analysis.exit_rule import exit_rules
from analysis.headline_plan import FIXED, FULL, PAPER, VARIANTS

_START, _STOP = "<!-- headline: made by python -m analysis.headline -->", "<!-- end of headline -->"
_REFERENCE = "acceleration"
_RESAMPLES = 10_000  # ends of intervals that decide something should not move by chance


@dataclass(frozen=True)
class Record:
    """One setting on one window, live.

    Attributes:
        budget: mean loops that the thresholds (one per block) were chosen for. full_loops: K.
        loss, loops, milliseconds: of every scored token: nats, loops in the mean over blocks, and what it took.
    """

    model: str
    full_loops: int
    rule: str
    budget: int
    thresholds: tuple[float, ...]
    window: int
    loss: tuple[float, ...]
    loops: tuple[float, ...]
    milliseconds: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """One rule at one budget on one model; a row of headline.csv. Undefined is NaN, and empty in the file.

    Attributes:
        loops: mean per token, over blocks. cross_entropy: nats per token. milliseconds: median per token.
        above_full, over_acceleration: cross-entropy less that of full depth, and less that of the acceleration rule (for a
            variant: of its variant) at the same budget, window by window; ``_lower`` and ``_upper`` are the ends of the 95 %
            bootstrap interval over windows.
        time_over_acceleration: median over windows of the ratio of the medians.
    """

    model: str
    full_loops: int
    rule: str
    budget: int
    thresholds: str
    windows: int
    tokens: int
    loops: float
    cross_entropy: float
    above_full: float
    above_full_lower: float
    above_full_upper: float
    over_acceleration: float
    over_acceleration_lower: float
    over_acceleration_upper: float
    milliseconds: float
    time_over_acceleration: float


def outcomes(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """All rows, in the order in which rules and budgets are shown. Raises ValueError when a rule lacks windows of its model."""
    by: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        by.setdefault((record.model, record.rule, record.budget), []).append(record)
    for rows in by.values():
        rows.sort(key=lambda record: record.window)
    order = (FULL, FIXED, *PAPER, *VARIANTS.values())
    models = list(dict.fromkeys(model for model, _, _ in by))
    places = sorted(by, key=lambda place: (models.index(place[0]), place[2], order.index(place[1])))
    return tuple(_outcome(by, place) for place in places)


def _outcome(by: Mapping[tuple[str, str, int], Sequence[Record]], place: tuple[str, str, int]) -> Outcome:
    model, rule, budget = place
    rows = by[place]
    full = next(found for (name, of, _), found in by.items() if (name, of) == (model, FULL))
    twin = by.get((model, VARIANTS[_REFERENCE] if rule in VARIANTS.values() else _REFERENCE, budget))
    above, over = _difference(rows, full), _difference(rows, twin)
    ratio = float("nan") if twin is None else float(np.median(_medians(rows) / _medians(twin)))
    return Outcome(
        model=model,
        full_loops=rows[0].full_loops,
        rule=rule,
        budget=budget,
        thresholds=" ".join(f"{x:.4g}" for x in rows[0].thresholds),
        windows=len(rows),
        tokens=sum(len(record.loss) for record in rows),
        loops=float(np.concatenate([record.loops for record in rows]).mean()),
        cross_entropy=float(np.concatenate([record.loss for record in rows]).mean()),
        above_full=above[0],
        above_full_lower=above[1],
        above_full_upper=above[2],
        over_acceleration=over[0],
        over_acceleration_lower=over[1],
        over_acceleration_upper=over[2],
        milliseconds=float(np.median(np.concatenate([record.milliseconds for record in rows]))),
        time_over_acceleration=ratio,
    )


def _medians(rows: Sequence[Record]) -> Float64[np.ndarray, " windows"]:
    return np.array([np.median(record.milliseconds) for record in rows])


def _difference(rows: Sequence[Record], others: Sequence[Record] | None) -> tuple[float, float, float]:
    """Cross-entropy less that of the others on the same tokens, and the ends of its interval over windows."""
    if others is None:
        return float("nan"), float("nan"), float("nan")
    if [record.window for record in rows] != [record.window for record in others]:
        raise ValueError(f"{rows[0].rule} and {others[0].rule} on {rows[0].model} were measured on different windows.")
    sums = np.array([[sum(a.loss) - sum(b.loss) for a, b in zip(rows, others, strict=True)]])
    tokens = np.array([float(len(record.loss)) for record in rows])
    drawn = resampled_means(sums, tokens, resamples(len(rows), count=_RESAMPLES))
    lower, upper = interval(drawn)[:, 0]
    return float(sums.sum() / tokens.sum()), float(lower), float(upper)


def to_csv(rows: Sequence[Outcome]) -> str:
    """The rows with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Outcome)]
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: float | int | str) -> str:
    if not isinstance(value, float):
        return str(value)
    return "" if np.isnan(value) else f"{value:.6f}"


def read_csv(text: str) -> tuple[Outcome, ...]:
    """The rows of ``to_csv``."""
    found: list[Outcome] = []
    for row in csv.DictReader(io.StringIO(text)):
        read = {field.name: _value(row[field.name], field.type) for field in fields(Outcome)}
        found.append(Outcome(**read))  # type: ignore[arg-type] - read by the fields' own types
    return tuple(found)


def _value(text: str, kind: object) -> float | int | str:
    if kind is float:
        return float(text) if text else float("nan")
    return int(text) if kind is int else text


def headline_tables(rows: Sequence[Outcome], *, machine: str) -> str:
    """What came out, in Markdown: how it was measured, one table of the paper's rules, one of the variants, and the count."""
    sizes = "; ".join(_size(rows, model) for model in dict.fromkeys(row.model for row in rows))
    parts = [
        f"Machine: {machine}. Tokens: {sizes}.",
        "Cells: cross-entropy in nats per token above full depth, mean loops, median milliseconds per token. "
        "**Bold**: the 95 % interval of the difference to full depth leaves out 0. Empty: no threshold spends this budget.",
        _table(rows, (FIXED, *PAPER)),
        _verdict(rows, ("kl", "step_norm", FIXED), _REFERENCE),
        "The same with what the public code of the paper's authors has in place of each rule:",
        _table(rows, tuple(VARIANTS.values())),
        _verdict(rows, (VARIANTS["kl"], VARIANTS["step_norm"]), VARIANTS[_REFERENCE]),
    ]
    return "\n\n".join(parts)


def _size(rows: Sequence[Outcome], model: str) -> str:
    full = next(row for row in rows if row.model == model and row.rule == FULL)
    return f"{model} {full.tokens} in {full.windows} windows"


def _table(rows: Sequence[Outcome], rules: Sequence[str]) -> str:
    titles = [exit_rules()[name].title for name in rules]
    lines = [f"| model | full depth | budget | {' | '.join(titles)} |", "|---" * (3 + len(rules)) + "|"]
    for model in dict.fromkeys(row.model for row in rows):
        full = next(row for row in rows if row.model == model and row.rule == FULL)
        words = f"{full.cross_entropy:.4f} nats, {full.full_loops} loops, {full.milliseconds:.1f} ms"
        for budget in sorted({row.budget for row in rows if row.model == model and row.rule != FULL}):
            at = {row.rule: row for row in rows if (row.model, row.budget) == (model, budget)}
            cells = [_words(at[name]) if name in at else "" for name in rules]
            lines.append(f"| {model} | {words} | {budget} | {' | '.join(cells)} |")
            words = ""
    return "\n".join(lines)


def _words(row: Outcome) -> str:
    above = f"{row.above_full:+.4f}"
    if row.above_full_lower > 0 or row.above_full_upper < 0:
        above = f"**{above}**"
    return f"{above}, {row.loops:.2f}, {row.milliseconds:.1f} ms"


def _verdict(rows: Sequence[Outcome], rivals: Sequence[str], reference: str) -> str:
    """In how many of the pairs at equal budget the reference is better, worse or neither, and how the times stand."""
    lines: list[str] = []
    title = exit_rules()[reference].title
    for name in rivals:
        pairs = [row for row in rows if row.rule == name and not np.isnan(row.over_acceleration)]
        if not pairs:
            continue
        better = sum(row.over_acceleration_lower > 0 for row in pairs)
        worse = sum(row.over_acceleration_upper < 0 for row in pairs)
        ratios = [row.time_over_acceleration for row in pairs]
        lines.append(
            f"- **{title} against {exit_rules()[name].title}** at {len(pairs)} equal budgets: cross-entropy lower in {better}, "
            f"higher in {worse}, undecided in {len(pairs) - better - worse} (the 95 % interval holds 0). The other takes "
            f"{min(ratios):.2f} to {max(ratios):.2f} times the milliseconds per token, {np.median(ratios):.2f} in the median."
        )
    return "\n".join(lines)


def with_table(text: str, rows: Sequence[Outcome], *, machine: str) -> str:
    """A Markdown text with what stands between the two marks made new. Raises ValueError when it has no marks."""
    before, mark, rest = text.partition(_START)
    _, end, after = rest.partition(_STOP)
    if not mark or not end:
        raise ValueError(f"The text has no headline table: it needs the lines {_START} and {_STOP}.")
    return f"{before}{_START}\n\n{headline_tables(rows, machine=machine)}\n\n{_STOP}{after}"
