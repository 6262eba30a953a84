"""The paper's headline, checked live: `python -m analysis.headline` (or `make headline`) measures and writes docs/headline.*.

Every exit rule gets the thresholds at which it spends equal loops on one text, and then really stops the loops on another,
token by token, in one process. All rules run on a window before the next window begins, in an order drawn anew, so that
whatever else the machine does meets all of them alike. Windows that are done are kept, and the command goes on from there.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis import export, study
from analysis.exit_rule import ExitRule
from analysis.headline_chart import headline_chart
from analysis.headline_plan import Setting, Subject, compared_rules, request_for, settings, subjects
from analysis.headline_table import Record, outcomes, read_csv, to_csv, with_table

_KEPT = Path("runs/headline/records.jsonl")
_DOCS = Path("docs")
_README = Path("README.md")
_WORDS = "headline.txt"


@dataclass(frozen=True)
class Plan:
    """A subject with its settings and what they were calibrated on."""

    subject: Subject
    settings: tuple[Setting, ...]
    rules: tuple[ExitRule, ...]


def plan(subject: Subject, rules: Sequence[ExitRule]) -> Plan:
    """Run the calibration windows at full depth and choose the thresholds."""
    request = request_for(subject, subject.calibrate, rules, record_all=True)
    return Plan(subject, settings(subject, study.run(request).trajectories, rules), tuple(rules))


def measure(planned: Plan, kept: dict[str, Record], *, seed: int = 0) -> Iterator[tuple[str, Record]]:
    """Every setting on every window, window by window; with the key under which it is to be kept, what is there left out."""
    order = np.random.default_rng(seed)
    for number, window in enumerate(planned.subject.report):
        for at in map(int, order.permutation(len(planned.settings))):
            setting = planned.settings[at]
            request = study.resolve(request_for(planned.subject, [window], setting.rules[:1], record_all=False))
            exit_ = setting.exit_()
            words = "" if exit_ is None else exit_.words
            key = hashlib.sha256(f"{request.key()} {words}".encode()).hexdigest()[:24]
            record = kept.get(key)
            if record is None:
                run = study.generate(request, study.Decoding(), exit_)
                record = _record(planned.subject, setting, number, run.trajectories[0])
            yield key, record


def _record(subject: Subject, setting: Setting, window: int, ran: study.Trajectory) -> Record:
    """What one live run gave; the last token has no next one and is not counted."""
    assert ran.seconds is not None, "a live run has the seconds of its tokens"
    last = ran.blocks[-1]
    scored = ran.tokens - 1
    log_p = last.readouts["coda", "log_probability_next"].astype(np.float64)
    loss = -log_p[last.loops_run - 1, np.arange(ran.tokens)][:scored]
    loops = np.stack([block.loops_run[:scored] for block in ran.blocks]).mean(axis=0)
    return Record(
        model=subject.name,
        full_loops=subject.loops,
        rule=setting.name,
        budget=setting.budget,
        thresholds=tuple(rule.threshold for rule in setting.rules),
        window=window,
        loss=tuple(round(float(x), 6) for x in loss),
        loops=tuple(round(float(x), 4) for x in loops),
        milliseconds=tuple(round(1000 * float(x), 3) for x in ran.seconds[:scored]),
    )


def read_kept(path: Path) -> dict[str, Record]:
    """What earlier calls have measured, by key; a line that was cut off is left away."""
    found: dict[str, Record] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            values: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        key = str(values.pop("key"))
        found[key] = Record(**{name: tuple(x) if isinstance(x, list) else x for name, x in values.items()})  # type: ignore[arg-type] - values of a file, by field
    return found


def machine() -> str:
    """Processor, threads and load, for the table."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.is_file() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    threads = "1 thread" if (count := os.environ["OMP_NUM_THREADS"]) == "1" else f"{count} threads"
    return f"{name}, {os.cpu_count()} cores, {threads}, float32; load average of the last 1, 5 and 15 minutes {load}"


def write(records: Sequence[Record], folder: Path, readme: Path, *, words: str) -> None:
    """The table as CSV and in the README, and the chart."""
    rows = outcomes(records)
    (folder / "headline.csv").write_text(to_csv(rows), encoding="utf-8", newline="")
    (folder / _WORDS).write_text(words + "\n", encoding="utf-8")
    rows = read_csv((folder / "headline.csv").read_text(encoding="utf-8"))  # rounded as everybody else reads them
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_table(text, rows, machine=words), encoding="utf-8")
    chart = headline_chart(rows, machine=words)
    for kind in ("png", "svg"):
        (folder / f"headline.{kind}").write_bytes(export.export(chart, kind=kind, venue="neurips2024"))


def main() -> None:
    """Measure and write. About ten minutes on two cores; one that was stopped goes on."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: a token alone is too little work for two threads
    parser = argparse.ArgumentParser(description="Measure exit rules live, at equal loops.")
    parser.add_argument("--windows", type=int, default=24, help="windows of report.txt for the demo")
    parser.add_argument("--tokens", type=int, default=24, help="scored tokens of each of them")
    parser.add_argument("--trained-tokens", type=int, default=32, help="scored tokens of each window of the other models")
    parser.add_argument("--kept", type=Path, default=_KEPT, help="where measured windows are kept")
    arguments = parser.parse_args()
    arguments.kept.parent.mkdir(parents=True, exist_ok=True)
    kept, records, new = read_kept(arguments.kept), list[Record](), False
    asked = subjects(demo_windows=arguments.windows, demo_tokens=arguments.tokens, trained_tokens=arguments.trained_tokens)
    with arguments.kept.open("a", encoding="utf-8") as file:
        for subject in asked:
            planned = plan(subject, compared_rules())
            for key, record in measure(planned, kept):
                records.append(record)
                if key not in kept:
                    kept[key], new = record, True
                    file.write(json.dumps({"key": key, **asdict(record)}) + "\n")
                    file.flush()
            sys.stderr.write(f"{subject.name}: {len(planned.settings)} settings on {len(subject.report)} windows\n")
    words = _DOCS / _WORDS
    said = words.read_text(encoding="utf-8").strip() if words.is_file() and not new else machine()
    write(records, _DOCS, _README, words=said)


if __name__ == "__main__":
    main()
