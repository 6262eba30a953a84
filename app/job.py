"""A run in a thread of its own: the page stays alive, sees how far it is, and can cancel it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from analysis import study

Work = Callable[[Callable[[str, float], None], Callable[[], bool]], study.Run]
"""What a job does: it is handed ``progress(stage, fraction)`` and ``cancel()``."""

_log = logging.getLogger(__name__)


@dataclass
class Job:
    """One run on its way. Written by its thread, read by the page; each field is replaced as a whole.

    Attributes:
        request: what is run.
        stage, fraction: how far it is.
        result: the run, once it is complete.
        problem: a sentence for the reader, once it has failed or was cancelled.
    """

    request: study.Request
    stage: str = "waiting for the model"
    fraction: float = 0.0
    result: study.Run | None = None
    problem: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._over.is_set()

    def cancel(self) -> None:
        """Ask it to stop; it does so between two loops."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; True if it came."""
        return self._over.wait(seconds)


def start(request: study.Request, work: Work) -> Job:
    """Start the work in a thread. Whatever it raises becomes the job's ``problem``, never a traceback."""
    job = Job(request)
    threading.Thread(target=_perform, args=(job, work), name="loopscope-run", daemon=True).start()
    return job


def _perform(job: Job, work: Work) -> None:
    def progress(stage: str, fraction: float) -> None:
        job.stage, job.fraction = stage, min(1.0, max(0.0, fraction))

    try:
        job.result = work(progress, job._stop.is_set)  # pyright: ignore[reportPrivateUsage]
    except study.KNOWN_ERRORS as error:
        job.problem = str(error)
    except Exception as error:
        _log.exception("A run failed unexpectedly")
        job.problem = (
            f"The run failed in a way that was not foreseen ({type(error).__name__}). Nothing on this page was lost; "
            "the server's log has the details. Try fewer loops or another checkpoint, or report it with that log."
        )
    finally:
        job._over.set()  # pyright: ignore[reportPrivateUsage]
