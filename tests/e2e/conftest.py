"""The real server and a real browser for the journeys; without a browser they are skipped, and fail under CI."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]
START_SECONDS = 90


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if not CHROMIUM.is_file():
        message = f"There is no Chromium at {CHROMIUM}; install Debian's package chromium to run the journeys."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the server makes its temporary ones."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Iterator[str]:
    """Address of a fresh server, started as the README says: ``streamlit run app``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "streamlit", "run", "app", "--server.port", str(port)]
    environment = os.environ | {"TMPDIR": str(kept)}
    with (
        log.open("w", encoding="utf-8") as out,
        subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(address, process, log)
            yield address
        finally:
            process.terminate()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"The server did not start:\n{log.read_text(encoding='utf-8')}")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh window of common size."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    window = context.new_page()
    window.set_default_timeout(120_000)
    yield window
    context.close()
