"""How far a run of the command line is: a bar on a terminal, one line per stage elsewhere; both on stderr."""

import math
import sys
from collections.abc import Callable

_CELLS = 28


class ProgressBar:
    """Progress over several prompts that run one after another."""

    def __init__(self, prompts: int) -> None:
        self._prompts = prompts
        self._live = sys.stderr.isatty()
        self._last = ""

    def prompt(self, number: int) -> Callable[[str, float], None]:
        """What ``study.run`` tells its progress to while it runs prompt ``number``."""

        def tell(stage: str, fraction: float) -> None:
            words = stage if self._prompts == 1 else f"prompt {number + 1} of {self._prompts}: {stage}"
            if self._live:
                share = (number + min(1.0, max(0.0, fraction))) / self._prompts
                full = math.floor(share * _CELLS)
                sys.stderr.write(f"\r\x1b[K[{'#' * full}{'.' * (_CELLS - full)}] {share:4.0%} {words}")
                sys.stderr.flush()
            elif words != self._last:
                sys.stderr.write(f"{words}\n")
            self._last = words

        return tell

    def close(self) -> None:
        """Remove the bar."""
        if self._live and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
