"""Live, on the page Exit rules: one rule run live on the prompt on screen and beyond, beside its post hoc reading."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import streamlit as st

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.live import Comparison, compare, live, post_hoc_request
from analysis.live_table import LIVE_HEADER, live_rows, live_words
from analysis.rule_name import condition
from analysis.written import Written, written, written_columns, written_words
from app import job as jobs
from app import state, watch
from app.markdown import literal
from app.table import table

_JOB: Final = "live"
_TOKENS: Final = "live.tokens"
_ROW, _TALLEST = 36, 450
"""Pixels of a row of the table of written tokens, and of the whole of it."""


@dataclass(frozen=True)
class Asked:
    """What a live run was asked for: the rule, the run and prompt on screen, and how many tokens to write."""

    rule: ExitRule
    identity: str
    new_tokens: int


@dataclass(frozen=True)
class Lived:
    """A comparison, with what was asked, the names of the blocks, the number of tokens, and what was written."""

    asked: Asked
    blocks: tuple[str, ...]
    tokens: int
    found: Comparison
    text: Written | None = None


def part() -> None:
    """Choose a rule, run it live, and read how that stands beside the post hoc run on screen."""
    watch.settle(_JOB)
    with st.container(key="live", gap="small"):
        st.header("Live", anchor=False)
        st.caption(
            "Reads the prompt on screen token by token and really stops every looped block where the rule fires; with new "
            "tokens, it writes on, taking the likeliest token. For a whole model this run decides; post hoc numbers are what "
            "it is compared with."
        )
        rules = {rule.name: rule for rule in state.rules() if rule.causal}
        if not rules:
            st.info("No causal exit rule is marked; choose one in the sidebar.", icon=":material/info:")
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            state.keep_among("live.rule", list(rules))
            name = st.selectbox(
                "Rule", list(rules), format_func=lambda name: rules[name].title, key="live.rule", bind="query-params", width=250
            )
            new_tokens, refused = _new_tokens(), _refused()
            if st.button("Run live", icon=":material/bolt:", key="run_live", disabled=bool(refused) or watch.busy(_JOB)):
                _start(rules[name], new_tokens)
                st.rerun()
        if refused:
            st.caption(literal(refused))
        watch.follow(_JOB)
        found: Lived | None = watch.result(_JOB)
        if found is not None:
            _outcome(found, new_tokens)


def mention() -> None:
    """On another page: how far a live run is that is on its way."""
    watch.settle(_JOB)
    watch.mention(_JOB, "A live run is on its way on the page Exit rules. What needs the model here waits for its turn.")


def _new_tokens() -> int:
    """How many tokens are to be written after the prompt; no more than the context has room for, where that is known."""
    current, room = state.shown(), None
    card: tuple[object, study.Card] | None = state.get("_card")
    if current is not None and current.request is not None and card is not None and card[1].digest == current.request.digest:
        room = max(0, card[1].context - current.run.trajectories[state.selection()[0]].tokens)
        state.keep_within(_TOKENS, room + 1)
    return int(
        st.number_input(
            "New tokens", 0, room, 0, 8, key=_TOKENS, bind="query-params", width=150,
            help="Written after the prompt, with exits and at full depth. 0 reads the prompt and no more.",
        )
    )  # fmt: skip


def _refused() -> str:
    current = state.shown()
    if current is None or current.request is None:
        return "A run folder may have no model here; make a run in this session to run its prompt live."
    return ""


def _start(rule: ExitRule, new_tokens: int) -> None:
    current = state.shown()
    if current is None or current.request is None:
        return
    prompt = state.selection()[0]
    request, trajectory = current.request.for_prompt(prompt), current.run.trajectories[prompt]
    on_screen = study.Run(request=request.to_json(), trajectories=(trajectory,))
    asked = Asked(rule, f"{current.identity} {prompt}", new_tokens)

    def work(progress: jobs.Progress, cancel: jobs.Cancel) -> Lived:
        return _lived(asked, request, on_screen, progress=progress, cancel=cancel)

    watch.begin(_JOB, jobs.start("live run", work))


def _lived(
    asked: Asked, request: study.Request, on_screen: study.Run, *, progress: jobs.Progress, cancel: jobs.Cancel
) -> Lived:
    """Run live, and beside it what it is compared with. Cancelled, it keeps the tokens that are done."""
    given, decoding = on_screen.trajectories[0], study.Decoding(new_tokens=asked.new_tokens)
    names, of = tuple(block.name for block in given.blocks), 3 if asked.new_tokens else 1
    try:
        run = live(request, asked.rule, decoding, progress=jobs.part(progress, 0, of=of), cancel=cancel)
    except study.Cancelled as cancelled:
        words = "The live run was stopped before its first token was done. Press Run live to start again."
        raise jobs.Stopped(words) from cancelled
    ours, tokens = run.trajectories[0], given.tokens + asked.new_tokens
    if ours.tokens <= given.tokens:
        return Lived(asked, names, tokens, compare(run, on_screen, asked.rule))
    text: Written | None = None
    with suppress(study.Cancelled):  # then the text at full depth is what is missing
        full = live(request, None, decoding, progress=jobs.part(progress, 1, of=of), cancel=cancel)
        text = written(ours, full.trajectories[0], given=given.tokens)
    post_hoc = study.run(post_hoc_request(request, run), progress=jobs.part(progress, 2, of=of))
    return Lived(asked, names, tokens, compare(run, post_hoc, asked.rule), text)


def _outcome(lived: Lived, new_tokens: int) -> None:
    current = state.shown()
    rule, found = lived.asked.rule, lived.found
    lens = f", {found.lens} lens" if found.lens else ""
    if lived.text is not None:
        _text(lived.text)
    table(
        LIVE_HEADER,
        live_rows(found, lived.blocks),
        alt="Mean loops live and post hoc, and the share of tokens with equal exit loops, per looped block",
    )
    st.markdown(" · ".join(f"{label} **{literal(value)}**" for label, value in live_words(found)))
    done = f"{found.tokens} tokens"
    if found.tokens < lived.tokens:
        done += f" of {lived.tokens}, as it was stopped; Run live starts again from the first one"
    words = f"{condition(rule)}, patience {rule.patience}{lens}: {done}."
    st.caption(literal(words))
    prompt = state.selection()[0]
    now = None if current is None else Asked(rule, f"{current.identity} {prompt}", new_tokens)
    if lived.asked != now or rule not in state.rules():
        st.info("Rule, settings or run on screen have changed since; run live again.", icon=":material/info:")


def _text(text: Written) -> None:
    """What was written with exits, beside the text at full depth."""
    columns = written_columns(text)
    rows = len(columns["position"])
    height = min(_ROW * (rows + 1), _TALLEST)
    st.dataframe(columns, hide_index=True, height=height, alt="Tokens written with exits, their loops, and those at full depth")
    st.markdown(literal(written_words(text)))
