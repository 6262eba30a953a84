"""Live, on the page Exit rules: one rule run live on the prompt on screen, beside its post hoc reading."""

from dataclasses import dataclass
from typing import Final

import streamlit as st

from analysis import study
from analysis.exit_rule import ExitRule
from analysis.live import Comparison, compare, live
from analysis.live_table import LIVE_HEADER, live_rows, live_words
from app import job as jobs
from app import state, watch
from app.markdown import literal
from app.table import table

_JOB: Final = "live"


@dataclass(frozen=True)
class Lived:
    """A comparison, with the rule that ran, the names of the blocks and the number of the prompt's tokens."""

    rule: ExitRule
    identity: str
    blocks: tuple[str, ...]
    tokens: int
    found: Comparison


def part() -> None:
    """Choose a rule, run it live, and read how that stands beside the post hoc run on screen."""
    watch.settle(_JOB)
    with st.container(key="live", gap="small"):
        st.header("Live", anchor=False)
        st.caption(
            "Reads the prompt on screen token by token and really stops every looped block where the rule fires. For a whole "
            "model this run decides; post hoc numbers are what it is compared with."
        )
        rules = {rule.name: rule for rule in state.rules() if rule.causal}
        if not rules:
            st.info("No causal exit rule is marked; choose one in the sidebar.", icon=":material/info:")
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.selectbox(
                "Rule", list(rules), format_func=lambda name: rules[name].title, key="live.rule", bind="query-params", width=250
            )
            refused = _refused()
            if st.button("Run live", icon=":material/bolt:", key="run_live", disabled=bool(refused) or watch.busy(_JOB)):
                _start(rules[name])
                st.rerun()
        if refused:
            st.caption(literal(refused))
        watch.follow(_JOB)
        found: Lived | None = watch.result(_JOB)
        if found is not None:
            _outcome(found)


def _refused() -> str:
    current = state.shown()
    if current is None or current.request is None:
        return "A run folder may have no model here; make a run in this session to run its prompt live."
    return ""


def _start(rule: ExitRule) -> None:
    current = state.shown()
    if current is None or current.request is None:
        return
    prompt = state.selection()[0]
    request, trajectory = current.request.for_prompt(prompt), current.run.trajectories[prompt]
    post_hoc = study.Run(request=request.to_json(), trajectories=(trajectory,))
    identity, names = f"{current.identity} {prompt}", tuple(block.name for block in trajectory.blocks)

    def work(progress: jobs.Progress, cancel: jobs.Cancel) -> Lived:
        run = live(request, rule, study.Decoding(), progress=progress, cancel=cancel)
        return Lived(rule, identity, names, trajectory.tokens, compare(run, post_hoc, rule))

    watch.begin(_JOB, jobs.start("live run", work))


def _outcome(lived: Lived) -> None:
    current = state.shown()
    rule, found = lived.rule, lived.found
    lens = f", {found.lens} lens" if found.lens else ""
    table(
        LIVE_HEADER,
        live_rows(found, lived.blocks),
        alt="Mean loops live and post hoc, and the share of tokens with equal exit loops, per looped block",
    )
    st.markdown(" · ".join(f"{label} **{literal(value)}**" for label, value in live_words(found)))
    cancelled = f" of {lived.tokens}, as the run was cancelled" if found.tokens < lived.tokens else ""
    done = f"{found.tokens} tokens{cancelled}"
    words = f"{rule.title} {rule.stops} {rule.threshold:.4g}, patience {rule.patience}: {done}{lens}."
    st.caption(literal(words))
    if current is None or lived.identity != f"{current.identity} {state.selection()[0]}" or rule not in state.rules():
        st.info("Rule, settings or run on screen have changed since; run live again.", icon=":material/info:")
