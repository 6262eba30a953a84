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
    _run_options(commands.add_parser("run", help="run a model and write its run folder and tables"))
    _export_options(commands.add_parser("export", help="write a chart of a run folder as PDF, SVG, PNG, CSV or JSON"))
    _inspect_options(commands.add_parser("inspect", help="say what a checkpoint is, without loading its weights"))
    _sweep_options(commands.add_parser("sweep", help="compare exit rules over a text, at every threshold"))
    listing = commands.add_parser("list", help="list rules, statistics, readouts, projections, charts, architectures")
    listing.add_argument("section", nargs="?", choices=SECTIONS, help="only this section")
    listing.set_defaults(command=_list)
    app = commands.add_parser("app", help="start the page in the browser")
    app.add_argument("--port", type=_port, help="port of the page (default: Streamlit's)")
    app.add_argument(
        "--address", help="address to listen on (default: 127.0.0.1; 0.0.0.0 lets other machines in, and opens no path unasked)"
    )
    app.add_argument(
        "--checkpoint-root",
        action="append",
        type=_folder,
        default=[],
        metavar="DIR",
        help="the page opens paths below this folder only; repeat for several",
    )
    app.set_defaults(command=_app)
    return parser


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint", default="demo", help="demo, demo@STEP, or a path (default: demo)")
    prompts = parser.add_mutually_exclusive_group(required=True)
    prompts.add_argument("--prompt", action="append", metavar="TEXT", help="one prompt; repeat for several")
    prompts.add_argument("--prompts", type=Path, metavar="FILE", help=".txt, .jsonl or .csv, one prompt per line or row")
    prompts.add_argument("--ids", metavar="5,6,7", help="one prompt as token ids")
    add("--loops", type=_numbers, required=True, metavar="K[,K2,..]", help="loops of every block, or one number per block")
    add("--seed", type=int, default=0, help="seed of the initial noise (default: 0)")
    add("--initial-state", default="trained", metavar="STATE", help="trained, zeros, normal:STD or FILE.npz (default: trained)")
    add("--lens", default="logit,coda", metavar="LENSES", help="logit,coda or none (default: both)")
    add(
        "--record",
        default="",
        metavar="QUANTITIES",
        help="further readouts, such as min_p_kl,kl_reverse; chosen rules bring theirs",
    )
    add("--every", type=int, default=1, metavar="N", help="store every N-th state (norms are recorded for every loop)")
    add("--tokens", type=_range, metavar="A:B", help="store states of positions A to B-1 only")
    add("--statistics-only", action="store_true", help="store no states")
    add("--dtype", default="float32", help="float32, bfloat16 or float16 (default: float32)")
    add("--device", default="cpu", help="device of the network (default: cpu)")
    _rule_options(parser)
    _named_options(parser)
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the run, statistics.csv and exits.csv")
    add("--overwrite", action="store_true", help="replace a run that is in the folder already")
    parser.set_defaults(command=_run)


def _export_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", type=Path, required=True, metavar="DIR", help="folder that `loopscope run` wrote")
    add("--chart", required=True, metavar="NAME", help="see `loopscope list charts`")
    add("--prompt", type=int, default=0, metavar="I", help="prompt, from 0 (default: 0)")
    add("--token", type=int, metavar="I", help="token position, from 0 (default: all)")
    add("--block", type=int, default=0, metavar="G", help="looped block, from 0 (default: 0)")
    add("--loop", type=int, metavar="K", help="loop, from 1 (default: the last)")
    add("--statistic", metavar="NAME", help="see `loopscope list statistics`")
    add("--dims", metavar="2|3", help="dimensions of a projection")
    add("--projection", metavar="NAME", help="see `loopscope list projections`")
    add("--camera", type=_camera, metavar="AZ,EL", help="degrees, for 3-D charts; write --camera=AZ,EL when AZ is negative")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="any other option of the chart; repeat for several")
    add("--other", action="append", default=[], metavar="LABEL=DIR", help="further run folder to compare with; repeat")
    _rule_options(parser)
    add("--venue", default="icml2024", help="icml2024, icml2024-wide or neurips2024 (default: icml2024)")
    add("--format", default="pdf", metavar="KINDS", help="pdf,svg,png,csv,json: one or several (default: pdf)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    parser.set_defaults(command=_export)


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint", default="demo", help="demo, demo@STEP, or a path (default: demo)")
    add("--text", type=Path, required=True, metavar="FILE", help="a text file, run in windows")
    add("--tokens", type=int, default=4096, metavar="N", help="tokens of the text in all (default: 4096)")
    add("--window", type=int, metavar="N", help="tokens per window (default: the context, at most an eighth of --tokens)")
    add(
        "--loops",
        type=_numbers,
        default=(16,),
        metavar="K[,K2,..]",
        help="loops of every block, or one per block (default: 16)",
    )
    add("--looped-block", type=int, metavar="G", help="looped block whose exits are compared, from 0 (default: the last)")
    add("--points", type=int, default=32, metavar="N", help="thresholds per rule, quantiles of its own scores (default: 32)")
    add("--calibrate", metavar="GOAL", help="find thresholds for quality=0.005 (share above full depth) or budget=6 (loops)")
    add("--held-out", type=Path, metavar="FILE", help="another text, on which calibrated thresholds are reported")
    add("--seed", type=int, default=0, help="seed of the initial noise (default: 0)")
    add("--dtype", default="float32", choices=("float32", "bfloat16", "float16"), help="default: float32")
    add("--device", default="cpu", help="device of the network (default: cpu)")
    _rule_options(parser)
    _named_options(parser)
    add("--live", action="store_true", help="run the calibrated rules again, with loops that really stop")
    add("--venue", default="icml2024", choices=("icml2024", "icml2024-wide", "neurips2024"), help="width of the charts")
    add("--format", default="pdf,svg,csv", metavar="KINDS", help="of the charts: pdf,svg,png,csv,json (default: pdf,svg,csv)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for sweep.csv, charts and the windows that are done")
    add("--overwrite", action="store_true", help="replace the windows of another request in the folder")
    parser.set_defaults(command=_sweep)


def _inspect_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", metavar="PATH", help="a folder or a weights file, demo, or demo@STEP")
    add("--json", action="store_true", help="print the card as JSON")
    add("--loops", type=_numbers, metavar="K[,K2,..]", help="with --tokens: the memory of a run with so many loops")
    add("--tokens", type=int, metavar="N", help="with --loops: length of the prompt of that run")
    _named_options(parser)
    parser.set_defaults(command=_inspect)


def _named_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a transformers model that is looped where you say").add_argument
    add("--block", metavar="PATH[,PATH2,..]", help="looped blocks by module path, such as model.layers or model.layers.2:5")
    add("--count", default="", metavar="FIELD", help="config field that sets the loops (default: the model's own number)")
    add("--norm", default="", metavar="PATH[,PATH2,..]", help="modules between an iterate and the head, in order")
    add("--head", default="", metavar="PATH", help="the linear output head; without it nothing is decoded")


def _rule_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--rules",
        metavar="NAME[,NAME2,..]",
        help="exit rules, or all (default: those of the paper); see `loopscope list rules`",
    )
    for option, value in (("threshold", "VALUE"), ("patience", "N"), ("minimum-loops", "N")):
        words = option.replace("-", " ")
        add(f"--{option}", action="append", default=[], metavar=f"RULE={value}", help=f"{words} of an exit rule; repeat")
    add("--rule", action="append", default=[], metavar="RULE.FIELD=VALUE", help="any other option: kl.scope=sequence; repeat")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} was given; write whole numbers such as 8 or 8,16,8") from error


def _range(text: str) -> tuple[int, int]:
    try:
        start, stop = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} was given; write START:STOP such as 0:16") from error
    return start, stop


def _camera(text: str) -> tuple[float, float]:
    try:
        azimuth, elevation = (float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} was given; write azimuth,elevation in degrees such as 120,10") from error
    return azimuth, elevation


def _folder(text: str) -> Path:
    folder = Path(text).expanduser().resolve()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder; give one that is there")
    if os.pathsep in str(folder):
        raise argparse.ArgumentTypeError(f"{text!r} has {os.pathsep!r} in its path, which separates folders; give another name")
    return folder


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} was given; a port is a number from 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
