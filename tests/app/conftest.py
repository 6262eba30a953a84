"""The page under AppTest is on one's own machine: paths are open unless a test says otherwise."""

import pytest


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest does not read app/.streamlit/config.toml, where the address is the loopback's."""
    from app import access

    def own(address: str | None) -> bool:
        return False

    monkeypatch.setenv(access.ROOTS, "")  # remembered, so that whatever the page sets is taken back
    monkeypatch.delenv(access.ROOTS)
    monkeypatch.setattr(access, "beyond_loopback", own)
