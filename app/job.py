"""Work in a thread of its own: the page stays alive, sees how far it is, and can cancel it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from analysis import study

T = TypeVar("T")
Progress = Callable[[str, float], None]
Cancel = Callable[[], bool]
Work = Callable[[Progress, Cancel], T]
"""What a job does: it is handed ``progress(stage, fraction)`` and ``cancel()``."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """Raised by work that the reader has stopped: says in a sentence what was kept, and carries what there is to show."""

    def __init__(self, words: str, kept: Any = None) -> None:
        super().__init__(words)
        self.kept = kept


@dataclass
class Job(Generic[T]):
    """One piece of work on its way. Written by its thread, read by the page; each field is replaced as a whole.

    Attributes:
        what: name of the work, as it stands in a sentence: ``run``.
        stage, fraction: how far it is.
        result: what it has brought, once it is complete; of one that was cancelled, what there is to show.
        problem: a sentence for the reader, once it has failed.
        notice: a sentence for the reader, once it was cancelled, which is no failure.
    """

    what: str
    stage: str
    fraction: float = 0.0
    result: T | None = None
    problem: str = ""
    notice: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._over.is_set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, and has not ended yet."""
        return self._stop.is_set() and not self.over

    def cancel(self) -> None:
        """Ask it to stop; a run does so between two loops."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; True if it came."""
        return self._over.wait(seconds)


def part(progress: Progress, number: int, *, of: int) -> Progress:
    """Progress of one of several equal parts of a job, told as progress of the whole."""

    def tell(stage: str, fraction: float) -> None:
        progress(stage, (number + fraction) / of)

    return tell


def start(what: str, work: Work[T], *, stage: str = "waiting for the model") -> Job[T]:
    """Start the work in a thread. What it raises becomes the job's ``problem``, or its ``notice``, never a traceback."""
    job = Job[T](what, stage)
    threading.Thread(target=_perform, args=(job, work), name=f"loopscope {what}", daemon=True).start()
    return job


def _perform(job: Job[T], work: Work[T]) -> None:
    def progress(stage: str, fraction: float) -> None:
        job.stage, job.fraction = stage, min(1.0, max(0.0, fraction))

    try:
        job.result = work(progress, job._stop.is_set)  # pyright: ignore[reportPrivateUsage]
    except Stopped as stopped:
        job.result, job.notice = stopped.kept, str(stopped)
    except study.Cancelled as cancelled:
        job.notice = str(cancelled)
    except study.KNOWN_ERRORS as error:
        job.problem = str(error)
    except Exception as error:
        _log.exception("Work failed unexpectedly: %s", job.what)
        job.problem = (
            f"The {job.what} failed in a way that was not foreseen ({type(error).__name__}). Nothing on this page was lost; "
            "the server's log has the details. Try fewer loops or another checkpoint, or report it with that log."
        )
    finally:
        job._over.set()  # pyright: ignore[reportPrivateUsage]
