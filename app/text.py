"""A text that exit rules are compared or calibrated on: bundled or uploaded, run in windows through the model on screen."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.needs import lenses_of, quantities_of
from analysis.prompts import decoded
from analysis.texts import BundledText, bundled_text, check_words, window_length
from app import cache, link, state, windows

Source = Literal["report", "calibrate", "upload"]
SOURCES: Final[Mapping[Source, str]] = {
    "report": "Bundled evaluation text (report.txt)",
    "calibrate": "Bundled calibration text (calibrate.txt)",
    "upload": "Upload",
}
JOB: Final = "sweep"
"""Name of the job that runs the text of the page Trade-off."""

_QUERY_FILE: Final = "text_file"
FEWEST: Final = 16
TOKENS: Final = 1024
"""Tokens of a text that are run, at least and where nobody chose."""


@dataclass(frozen=True)
class Text:
    """A text by name. ``digest`` tells two of the same name apart."""

    name: str
    words: str
    digest: str


@dataclass(frozen=True)
class Recorded:
    """A text as it ran: full depth, statistics and readouts of every window, no states.

    ``base`` is the request of the run on screen from which model and settings came; ``windows`` says how many were asked
    for, which are more than ran where the sweep was stopped on its way.
    """

    text: Text
    base: study.Request
    run: study.Run
    identity: str
    flops: study.Flops | None
    windows: int

    @property
    def done(self) -> int:
        """Windows that ran."""
        return len(self.run.trajectories)


class Interrupted(study.Cancelled):
    """A text that was stopped on its way. ``recorded`` holds the windows that are done; None when that is none."""

    def __init__(self, text: Text, windows: int, recorded: Recorded | None) -> None:
        super().__init__(f"The text {text.name} was stopped on its way.")
        self.recorded, self._text, self._windows = recorded, text, windows

    def words(self, what: str, *, button: str) -> str:
        """A sentence for the reader: what was stopped, what is kept, and which button goes on with it."""
        done = 0 if self.recorded is None else self.recorded.done
        if not done:
            return f"The {what} was stopped before a window of {self._text.name} was complete. Press {button} to start again."
        kept = "They are kept" if done > 1 else "It is kept"
        return (
            f"The {what} was stopped after {done} of {self._windows} windows of {self._text.name}. {kept}: press {button} to "
            "go on from there."
        )


def bundled(name: BundledText) -> Text:
    """One of the texts that come with the project."""
    return _text(f"{name}.txt", bundled_text(name))


def keep_upload(name: str, data: bytes) -> None:
    """Remember an uploaded text for this session, and name it in the link. Raises PromptError; the one before stays."""
    words = decoded(name, data)
    check_words(words, name)
    text = _text(name, words)
    state.put("_text", text)
    link.keep(_QUERY_FILE, f"{name} ({text.digest[:12]})")


def uploaded() -> Text | None:
    """The uploaded text, None while there is none."""
    return state.get("_text")


def missing_words() -> str:
    """What to do while no text was uploaded."""
    named = link.read(_QUERY_FILE)
    if named:
        return f"This link goes with the text {named}, which a link cannot carry; upload it."
    return "No text was given; upload a .txt file."


def _text(name: str, words: str) -> Text:
    return Text(name, words, hashlib.sha256(words.encode()).hexdigest())


def same_model(one: study.Request, other: study.Request) -> bool:
    """Whether two requests run the same model in the same way, whatever their prompts and what they record."""
    return replace(one, prompts=other.prompts, lenses=other.lenses, record=other.record, quantities=other.quantities) == other


def windows_words(recorded: Recorded) -> str:
    """How much of a text ran: ``8 windows``, or ``3 of 8 windows`` where it was stopped."""
    return f"{recorded.done} of {recorded.windows} windows" if recorded.done < recorded.windows else f"{recorded.done} windows"


def saying_more(part: Recorded | None, before: Recorded | None) -> Recorded | None:
    """The part of a text that was stopped, unless what is on screen is as much of that text through the same model, or more."""
    if part is None or before is None or part.text != before.text or not same_model(part.base, before.base):
        return part
    return part if part.done > before.done else None


def record(
    text: Text,
    base: study.Request,
    rules: Sequence[ExitRule],
    *,
    tokens: int,
    last: bool,
    kept: cache.Shelf,
    progress: Callable[[str, float], None],
    cancel: Callable[[], bool],
) -> Recorded:
    """Run the first ``tokens`` tokens of a text in windows; those that ran before come from the shelf.

    ``last``: whether the last looped block will be read, or another one, which the coda lens does not decode.
    Raises Interrupted with the windows that are done when it is cancelled, else one of study.KNOWN_ERRORS with a sentence.
    """
    card = study.card(base.checkpoint, named=base.named)
    ids, _ = study.tokenize(base.checkpoint, text.words, named=base.named)
    if len(ids) < 2:
        raise study.RequestError(f"The text {text.name} has fewer than 2 tokens; give a longer one.")
    request = study.resolve(
        replace(
            base,
            prompts=windows.windows(ids, tokens=tokens, length=window_length(tokens, context=card.context), text=text.name),
            lenses=lenses_of(rules, last=last),
            record=study.Record(states=False),
            quantities=quantities_of(rules),
        )
    )
    needed = study.estimate(request.for_prompt(0))
    if not needed.fits:
        raise study.MemoryLimit(needed.sentence())
    try:
        run = cache.obtain(request, kept, progress=progress, cancel=cancel, each="window")
        return Recorded(text, base, run, request.key(), card.flops, len(request.prompts))
    except study.Cancelled as cancelled:
        raise _interrupted(text, base, request, card.flops, kept=kept) from cancelled


def _interrupted(
    text: Text, base: study.Request, request: study.Request, flops: study.Flops | None, *, kept: cache.Shelf
) -> Interrupted:
    """What is there of a text whose windows were to run as ``request`` says."""
    done, count = cache.found(request, kept), len(request.prompts)
    if not done:
        return Interrupted(text, count, None)
    part = replace(request, prompts=tuple(prompt for prompt, _ in done))
    run = study.Run(request=part.to_json(), trajectories=tuple(t for _, one in done for t in one.trajectories))
    return Interrupted(text, count, Recorded(text, base, run, part.key(), flops, count))
