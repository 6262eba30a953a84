"""Build what comes with the demo beside its checkpoints: cards and precaptured runs (`make demo-runs`)."""

import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

from model.capture.trajectory import save_run
from model.checkpoint import card
from model.locate import DEMO_FOLDER, demo_names, digest, locate
from model.request import Prompt, Record, Request
from model.runner import run

FIRST_PROMPT = "The old king opened the little door, and there stood a man who said to him,"
FIRST_LOOPS = 16
OVERLAY_LOOPS = 24


def build(folder: Path) -> None:
    """Write cards.json and runs/: the first screen's run, and statistics of every checkpoint on its prompt."""
    cards = {name: asdict(card(name)) for name in demo_names()}
    (folder / "cards.json").write_text(json.dumps(cards, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder / "runs", ignore_errors=True)
    last = demo_names()[-1]
    first = Request(last, (Prompt(FIRST_PROMPT),), (FIRST_LOOPS,), digest=digest(locate(last)))
    save_run(run(first), folder / "runs" / "first")
    for name in demo_names():
        request = replace(
            first, checkpoint=name, digest=digest(locate(name)), loops=(OVERLAY_LOOPS,), lenses=(), record=Record(states=False)
        )
        save_run(run(request), folder / "runs" / name.replace("demo@", "step-"))
        sys.stderr.write(f"{name} done\n")


if __name__ == "__main__":
    build(DEMO_FOLDER)
