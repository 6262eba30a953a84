"""The options of the commands: what can be given, in which form, and what stands where nothing is given."""

import argparse
import os
from pathlib import Path


def run_options(parser: argparse.ArgumentParser) -> None:
    """Of ``loopscope run``."""
    add = parser.add_argument
    prompts = parser.add_mutually_exclusive_group(required=True)
    prompts.add_argument("--prompt", action="append", metavar="TEXT", help="one prompt; repeat for several")
    prompts.add_argument("--prompts", type=Path, metavar="FILE", help=".txt, .jsonl or .csv, one prompt per line or row")
    prompts.add_argument("--ids", metavar="5,6,7", help="one prompt as token ids")
    add("--every", type=int, default=1, metavar="N", help="store every N-th state (norms are recorded for every loop)")
    add("--tokens", type=_range, metavar="A:B", help="store states of positions A to B-1 only")
    add("--statistics-only", action="store_true", help="store no states")
    model_options(parser, loops=None, lens="logit,coda")
    _rule_options(parser)
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the run, statistics.csv and exits.csv")
    add("--overwrite", action="store_true", help="replace a run that is in the folder already")


def export_options(parser: argparse.ArgumentParser) -> None:
    """Of ``loopscope export``."""
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


def sweep_options(parser: argparse.ArgumentParser) -> None:
    """Of ``loopscope sweep``."""
    add = parser.add_argument
    add("--text", type=Path, required=True, metavar="FILE", help="a text file, run in windows")
    add("--tokens", type=int, default=4096, metavar="N", help="tokens of the text in all (default: 4096)")
    add("--window", type=int, metavar="N", help="tokens per window (default: the context, at most an eighth of --tokens)")
    add("--looped-block", type=int, metavar="G", help="looped block whose exits are compared, from 0 (default: the last)")
    add("--points", type=int, default=32, metavar="N", help="thresholds per rule, quantiles of its own scores (default: 32)")
    add("--calibrate", metavar="GOAL", help="find thresholds for quality=0.005 (share above full depth) or budget=6 (loops)")
    add("--held-out", type=Path, metavar="FILE", help="another text, on which calibrated thresholds are reported")
    model_options(parser, loops=(16,), lens=None)
    _rule_options(parser)
    add("--live", action="store_true", help="run the calibrated rules again, with loops that really stop")
    add("--venue", default="icml2024", choices=("icml2024", "icml2024-wide", "neurips2024"), help="width of the charts")
    add("--format", default="pdf,svg,csv", metavar="KINDS", help="of the charts: pdf,svg,png,csv,json (default: pdf,svg,csv)")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for sweep.csv, charts and the windows that are done")
    add("--overwrite", action="store_true", help="replace the windows of another request in the folder")


def inspect_options(parser: argparse.ArgumentParser) -> None:
    """Of ``loopscope inspect``."""
    add = parser.add_argument
    add("checkpoint", metavar="PATH", help="a folder or a weights file, demo, or demo@STEP")
    add("--json", action="store_true", help="print the card as JSON")
    add("--loops", type=_numbers, metavar="K[,K2,..]", help="with --tokens: the memory of a run with so many loops")
    add("--tokens", type=int, metavar="N", help="with --loops: length of the prompt of that run")
    _named_options(parser)


def app_options(parser: argparse.ArgumentParser) -> None:
    """Of ``loopscope app``."""
    add = parser.add_argument
    add("--port", type=_port, help="port of the page (default: Streamlit's)")
    add(
        "--address", help="address to listen on (default: 127.0.0.1; 0.0.0.0 lets other machines in, and opens no path unasked)"
    )
    add(
        "--checkpoint-root",
        action="append",
        type=_folder,
        default=[],
        metavar="DIR",
        help="the page opens paths below this folder only; repeat for several",
    )


def model_options(parser: argparse.ArgumentParser, *, loops: tuple[int, ...] | None, lens: str | None) -> None:
    """The model and how it runs, alike for every command that runs one: ``app.requested`` reads them.

    ``loops`` is the default, None where a number must be given. ``lens`` is the default, None for what suits the looped block.
    """
    add = parser.add_argument_group("the model and how it runs").add_argument
    add("--checkpoint", default="demo", help="demo, demo@STEP, or a path (default: demo)")
    usual = "" if loops is None else f" (default: {','.join(map(str, loops))})"
    words = f"loops of every block, or one number per block{usual}"
    add("--loops", type=_numbers, required=loops is None, default=loops, metavar="K[,K2,..]", help=words)
    add("--seed", type=int, default=0, help="seed of the initial noise (default: 0)")
    add("--initial-state", default="trained", metavar="STATE", help="trained, zeros, normal:STD or FILE.npz (default: trained)")
    both = "coda for the last looped block, logit for another" if lens is None else "both"
    add("--lens", default=lens, metavar="LENSES", help=f"logit,coda or none (default: {both})")
    record = "further readouts, such as min_p_kl,kl_reverse; chosen rules bring theirs"
    add("--record", default="", metavar="QUANTITIES", help=record)
    add("--dtype", default="float32", help="float32, bfloat16 or float16 (default: float32)")
    add("--device", default="cpu", help="device of the network (default: cpu)")
    _named_options(parser)


def _named_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a transformers model that is looped where you say").add_argument
    add("--block", metavar="PATH[,PATH2,..]", help="looped blocks by module path, such as model.layers or model.layers.2:5")
    add("--count", default="", metavar="FIELD", help="config field that sets the loops (default: the model's own number)")
    add("--norm", default="", metavar="PATH[,PATH2,..]", help="modules between an iterate and the head, in order")
    add("--head", default="", metavar="PATH", help="the linear output head; without it nothing is decoded")


def _rule_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("exit rules").add_argument
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
