"""Hand-made charts that exercise every mark, axis and awkward label, for the tests of the renderers."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from analysis.chart import Chart, Columns
    from model.capture.trajectory import Provenance

HOSTILE = ("<s>", "$x$", "🙂", "_a^b", "<b>x</b>", "two\nlines", "a&amp;b", "%{x}", "·日本", "\\frac{1}{2}")


def provenance() -> "Provenance":
    from model.capture.trajectory import Provenance

    return Provenance(
        checkpoint="toy",
        digest="0" * 64,
        architecture="latent_ttc",
        space="raw",
        dtype="float32",
        device="cpu",
        seed=0,
        initial_state="normal(0.1)",
        loops_trained=float("nan"),
        noise_floor=1e-6,
    )


def columns(count: int, *, loops: int = 8) -> "Columns":
    return {
        "prompt": np.zeros(count, dtype=np.int64),
        "position": np.arange(count, dtype=np.int64) // loops,
        "token": np.array([HOSTILE[i // loops % len(HOSTILE)] for i in range(count)]),
        "block": np.array(["h[4]"] * count),
        "loop": np.arange(count, dtype=np.int64) % loops,
        "score": np.where(np.arange(count) % 3 == 0, np.nan, 0.5),
    }


def spiral(*, tokens: int = 4, loops: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of x, y, z; a NaN row ends each token."""
    rows: list[np.ndarray] = []
    for t in range(tokens):
        k = np.arange(loops)
        radius = 0.7**k
        xyz = np.stack([2.0 * t + radius * np.cos(0.8 * k + t), radius * np.sin(0.8 * k + t), 0.1 * k], axis=1)
        rows += [xyz, np.full((1, 3), np.nan)]
    x, y, z = np.concatenate(rows).T
    return x, y, z


def plane(*, tokens: int = 4) -> "Chart":
    """Line, points of every glyph, arrows; equal aspect; loop colours."""
    from analysis.chart import Arrows, Axis, Chart, Line, Panel, Points, Role

    x, y, _ = spiral(tokens=tokens)
    count = len(x)
    keys = columns(count, loops=9)
    loop = np.where(np.isnan(x), np.nan, np.arange(count) % 9).astype(np.float64)
    block = Role("block", index=0, of=3)
    start, end = np.arange(count) % 9 == 0, np.arange(count) % 9 == 7

    def part(mask: np.ndarray) -> "Columns":
        return {name: column[mask] for name, column in keys.items()}

    dx, dy = np.diff(x), np.diff(y)
    kept = np.isfinite(dx)
    marks = (
        Line(x, y, keys, block, legend="h[4]"),
        Line(
            x[6:16:9], y[6:16:9] + 0.1, part(np.isin(np.arange(count), (6, 15))), Role("muted"), legend="hand-off", dash="dash"
        ),
        Arrows(x[:-1][kept], y[:-1][kept], dx[kept], dy[kept], part(np.append(kept, False)), block),
        Points(x, y, keys, block, value=loop, value_title="loop", size=6.0),
        Points(x[start], y[start], part(start), block, glyph="start", legend="start (k = 0)", size=8.0),
        Points(x[end], y[end], part(end), block, glyph="end", legend="end", size=8.0),
        *(
            Points(x[i::9], y[i::9], part(np.arange(count) % 9 == i), Role("rule", name=name), glyph="exit", legend=name)
            for i, name in ((3, "step_norm"), (4, "kl"), (5, "acceleration"), (6, "of tomorrow"))
        ),
    )
    panel = Panel(Axis("PC1 (61.2 % variance)"), Axis("PC2 (20.1 % variance)"), marks, equal=True)
    return Chart("plane", "Paths <b>in</b> the plane", (panel,), "PCA of 4 tokens.", "Four spirals.", provenance())


def space() -> "Chart":
    """The same in three dimensions, from a camera that is not the default."""
    from analysis.chart import Axis, Camera, Chart, Line, Panel, Points, Role

    x, y, z = spiral()
    keys = columns(len(x), loops=9)
    loop = np.where(np.isnan(x), np.nan, np.arange(len(x)) % 9).astype(np.float64)
    block = Role("block", index=1, of=3)
    sixth = np.arange(len(x)) % 9 == 5
    few = {name: column[sixth] for name, column in keys.items()}
    marks = (
        Line(x, y, keys, block, legend="h[5]", z=z),
        Points(x, y, keys, block, z=z, value=loop, value_title="loop"),
        Points(x[::9], y[::9], {n: c[::9] for n, c in keys.items()}, block, z=z[::9], glyph="start", legend="start", size=8.0),
        Points(x[sixth], y[sixth], few, Role("rule", name="kl"), z=z[sixth], glyph="exit", legend="kl"),
    )
    panel = Panel(Axis("PC1 (61 %)"), Axis("PC2 (20 %)"), marks, z=Axis("PC3 (9 %)"), equal=True)
    return Chart(
        "space", "Paths in space", (panel,), "PCA.", "Four spirals.", provenance(), camera=Camera(azimuth=120.0, elevation=10.0)
    )


def curves() -> "Chart":
    """Three panels on log axes: band, line, hollow points, rules across both ways."""
    from analysis.chart import Axis, Band, Chart, Line, Panel, Points, Role, Rule

    panels: list[Panel] = []
    for g in range(3):
        k = np.arange(1, 17).astype(np.float64)
        y = 3.0 * 0.5**k
        y[9] = np.nan
        keys = columns(16, loops=16)
        role = Role("block", index=g, of=3)
        first = {name: column[:1] for name, column in keys.items()}
        marks = (
            Band(k, np.where(k == 4, 0.0, y / 2), y * 2, keys, role),
            Line(k, y, keys, role, legend="median", markers=True),
            Points(k[:1], y[:1], first, role, glyph="hollow", legend="holds the first step"),
            Rule(8.0, "vertical", "loops in training", Role("muted"), dash="dot"),
            Rule(1e-3, "horizontal", "τ = 0.001 <b>", Role("rule", name="acceleration")),
        )
        panels.append(Panel(Axis("loop", whole=True), Axis("step norm", scale="log"), marks, title=f"h[{g + 4}] <i>"))
    return Chart("curves", "Step norm", tuple(panels), "Median and quartiles.", "Falling curves.", provenance())


def heatmap(*, tokens: int = 10, loops: int = 12) -> "Chart":
    """Tokens on x under hostile labels, an undefined last row, exit marks, reversed loops."""
    from analysis.chart import Axis, Chart, Heatmap, Panel, Points, Role

    x, y = np.arange(tokens).astype(np.float64), np.arange(1, loops + 1).astype(np.float64)
    values = -y[:, None] * 0.3 + np.sin(x)[None, :]
    values[-1] = np.nan
    cells = columns(tokens * loops, loops=loops)
    exits = {name: column[:tokens] for name, column in cells.items()}
    marks = (
        Heatmap(x, y, values, cells, "log₁₀ distance to the last iterate"),
        Points(x, np.full(tokens, 5.0), exits, Role("rule", name="step_norm"), glyph="exit", legend="step norm < 0.1"),
        Points(x, np.full(tokens, 7.0), exits, Role("rule", name="kl"), glyph="exit", legend="KL < 5e-4"),
    )
    ticks = tuple((float(i), HOSTILE[i % len(HOSTILE)]) for i in range(tokens))
    panel = Panel(Axis("token", ticks=ticks), Axis("loop", whole=True, reversed=True), marks)
    return Chart("heatmap", "Distance", (panel,), "Distance to the last iterate.", "A map.", provenance())


def says(*, tokens: int = 10, loops: int = 8) -> "Chart":
    """Text in cells over a probability scale."""
    from analysis.chart import Axis, Chart, Heatmap, Panel

    x, y = np.arange(tokens).astype(np.float64), np.arange(1, loops + 1).astype(np.float64)
    values = np.linspace(0, 1, tokens * loops).reshape(loops, tokens)
    text = np.array([[HOSTILE[(r + c) % len(HOSTILE)] for c in range(tokens)] for r in range(loops)])
    map_ = Heatmap(x, y, values, columns(tokens * loops, loops=loops), "probability", "probability", text, (0.0, 1.0))
    ticks = tuple((float(i), HOSTILE[i % len(HOSTILE)]) for i in range(tokens))
    panel = Panel(Axis("token", ticks=ticks), Axis("loop", whole=True), (map_,))
    return Chart("says", "What the model says", (panel,), "Top-1 tokens.", "A map of words.", provenance())


def bars() -> "Chart":
    """Bars with whiskers and text beside a diverging map."""
    from analysis.chart import Axis, Bars, Chart, Heatmap, Panel, Role

    x, y = np.arange(2.0), np.array([31.0, 48.0])
    marks = (Bars(x, y, columns(2), Role("block", index=0), "drift", y * 0.8, y * 1.3, ("K = 8", "K = 8")),)
    ticks = ((0.0, "h[4] → h[5]"), (1.0, "h[5] → h[7]"))
    left = Panel(Axis("hand-off", ticks=ticks), Axis("drift-to-loop ratio", unit="×", scale="log"), marks)
    grid = np.linspace(-1, 0.5, 12).reshape(3, 4)
    right = Panel(
        Axis("token", ticks=tuple((float(i), f"t{i}") for i in range(4))),
        Axis("loop", whole=True),
        (Heatmap(np.arange(4.0), np.array([1.0, 4.0, 8.0]), grid, columns(12), "difference", "diverging"),),
    )
    return Chart("bars", "Drift", (left, right), "Bars.", "Two bars.", provenance())


def series() -> "Chart":
    """One line per checkpoint, in order of training."""
    from analysis.chart import Axis, Chart, Line, Panel, Role

    k = np.arange(1, 17).astype(np.float64)
    marks = tuple(
        Line(
            k,
            2.0 / (i + 1) * 0.7**k,
            columns(16, loops=16),
            Role("series", index=i, of=7),
            legend=f"step {i * 350}",
            markers=True,
        )
        for i in range(7)
    )
    panels = (
        Panel(Axis("loop", whole=True), Axis("step norm", scale="log"), marks),
        Panel(Axis("loop", whole=True), Axis("step cosine", limits=(-1.0, 1.0)), marks),
    )
    return Chart("series", "Along training", panels, "One line per checkpoint.", "Lines.", provenance())


def every() -> "tuple[Chart, ...]":
    """All of them."""
    return plane(), space(), curves(), heatmap(), says(), bars(), series()
