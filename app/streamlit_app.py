"""The page: configuration, navigation, sidebar. ``streamlit run app`` starts it and needs exactly this name."""

import sys
from pathlib import Path

# `streamlit run app` puts only this folder on the path, and the packages lie beside it.
_PICTURES = Path(__file__).resolve().parent / "components"
_ROOT = str(Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

import streamlit as st  # noqa: E402

from app import access, calibration, controls, header, looks  # noqa: E402

# Four ways to give a prompt fit side by side only if they stand closer than Streamlit puts them.
_STYLE = """
<style>
.st-key-input button { padding-inline: 0.4rem; }
</style>
"""

# Streamlit writes white on the primary colour whatever that is; a primary that reads well on dark is too light for it.
_DARK = """
<style>
.st-key-run button, .st-key-open button, .st-key-sweep button, .st-key-calibrate_now button,
[data-testid="stMultiSelect"] span[title] { color: #0E1117; }
</style>
"""


def main() -> None:
    """Draw the page that the address asks for."""
    st.set_page_config(
        page_title="Loopscope", page_icon=str(_PICTURES / "icon.svg"), layout="wide", initial_sidebar_state="expanded"
    )
    access.guard(st.get_option("server.address"))
    st.logo(str(_PICTURES / "logo.svg"), icon_image=str(_PICTURES / "icon.svg"))
    pages = (
        st.Page(
            "views/trajectories.py",
            title="Trajectories",
            icon=":material/timeline:",
            help="How each token's state moves through the looped blocks, and what the model would say after each loop.",
            default=True,
        ),
        st.Page(
            "views/two_scales.py",
            title="Two scales",
            icon=":material/stacked_line_chart:",
            help="Small steps within a block against the jumps between blocks, and how both change along training.",
        ),
        st.Page(
            "views/exit_rules.py",
            title="Exit rules",
            icon=":material/logout:",
            help="Where each early-exit rule would stop each token, for the thresholds in the sidebar.",
        ),
        st.Page(
            "views/trade_off.py",
            title="Trade-off",
            icon=":material/balance:",
            help="What each exit rule costs and keeps over all its thresholds, on a whole text.",
        ),
    )
    st.html(_STYLE)
    if looks.dark():
        st.html(_DARK)
    page = st.navigation(pages, position="top")
    calibration.settle()
    controls.sidebar(rules_open=page.url_path in ("exit_rules", "trade_off"))
    with st.container():
        header.header(page.title)
    page.run()


main()
