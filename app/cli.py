"""The command line: the same runs, charts and tables as the page, without a browser."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from app.access import ROOTS
from app.arguments import app_options, export_options, inspect_options, run_options, sweep_options

SECTIONS = ("rules", "statistics", "readouts", "projections", "charts", "architectures")
STOPPED_BY_USER = 130
REFUSED = 2


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence instead of repeating the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for input that is refused, 130 when stopped by Ctrl-C.

    What the commands need is imported inside them, so that ``--help`` answers at once.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode shows escapes, not a traceback
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _refuse("stopped", code=STOPPED_BY_USER)
    except BrokenPipeError:
        # The reader (head, less) has gone. Python would complain once more while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        return _refuse(sentence)


def _refuse(sentence: str, *, code: int = REFUSED) -> int:
    sys.stderr.write(f"loopscope: {sentence}\n")
    return code


def _sentence(error: Exception) -> str | None:
    """What to tell the person, or None for an error that is ours."""
    from analysis import study
    from app.options import OptionError

    if isinstance(error, (*study.KNOWN_ERRORS, OptionError)):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; give a path that can be read and written here."
    return None


def _run(arguments: argparse.Namespace) -> int:
    from app.commands import run

    return run(arguments)


def _export(arguments: argparse.Namespace) -> int:
    from app.commands import export

    return export(arguments)


def _inspect(arguments: argparse.Namespace) -> int:
    from app.inspection import inspect

    return inspect(arguments)


def _sweep(arguments: argparse.Namespace) -> int:
    from app.sweeping import sweep_text

    return sweep_text(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from app.commands import listing

    return listing(arguments)


def _app(arguments: argparse.Namespace) -> int:
    # -P: a model.py in the folder where this was typed must not hide our package.
    command = [sys.executable, "-P", "-m", "streamlit", "run", str(Path(__file__).resolve().parent)]
    if arguments.port is not None:
        command.append(f"--server.port={arguments.port}")
    if arguments.address is not None:
        command.append(f"--server.address={arguments.address}")
    environment = dict(os.environ)
    if arguments.checkpoint_root:
        environment[ROOTS] = os.pathsep.join(str(folder) for folder in arguments.checkpoint_root)
    return subprocess.run(command, check=False, env=environment).returncode


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="loopscope", description="See how a looped transformer moves, and where exit rules would stop it.")
    parser.add_argument("--version", action="version", version=f"loopscope {version('loopscope')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _command(commands.add_parser("run", help="run a model and write its run folder and tables"), run_options, _run)
    _command(
        commands.add_parser("export", help="write a chart of a run folder as PDF, SVG, PNG, CSV or JSON"),
        export_options,
        _export,
    )
    _command(
        commands.add_parser("inspect", help="say what a checkpoint is, without loading its weights"), inspect_options, _inspect
    )
    _command(commands.add_parser("sweep", help="compare exit rules over a text, at every threshold"), sweep_options, _sweep)
    listing = commands.add_parser("list", help="list rules, statistics, readouts, projections, charts, architectures")
    listing.add_argument("section", nargs="?", choices=SECTIONS, help="only this section")
    listing.set_defaults(command=_list)
    app = commands.add_parser("app", help="start the page in the browser")
    app_options(app)
    app.set_defaults(command=_app)
    return parser


def _command(
    parser: argparse.ArgumentParser,
    options: Callable[[argparse.ArgumentParser], None],
    command: Callable[[argparse.Namespace], int],
) -> None:
    options(parser)
    parser.set_defaults(command=command)


if __name__ == "__main__":
    sys.exit(main())
