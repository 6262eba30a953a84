"""Which paths the page opens: addresses that others can reach, and folders that were named."""

import os
from pathlib import Path

import pytest

from app import access
from app.access import beyond_loopback


def anywhere(address: str | None) -> bool:
    """As if the server could be reached from other machines."""
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "unix:///run/page.socket"])
def test_an_address_of_this_machine_only(address: str) -> None:
    assert not beyond_loopback(address)


@pytest.mark.parametrize(
    "address", [None, "", " ", "0.0.0.0", "::", "192.168.1.5", "2001:db8::1", "my-server", "localhost.example"]
)
def test_an_address_that_others_can_reach(address: str | None) -> None:
    assert beyond_loopback(address)


def test_a_reachable_server_opens_no_path_unless_folders_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    access.guard("127.0.0.1")
    assert access.ROOTS not in os.environ
    assert access.paths_words() == ("", "")
    monkeypatch.setattr(access, "beyond_loopback", anywhere)
    access.guard("0.0.0.0")
    assert os.environ[access.ROOTS] == ""
    assert "paths are closed" in access.paths_words()[0]
    two = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    monkeypatch.setenv(access.ROOTS, two)
    access.guard("0.0.0.0")
    assert os.environ[access.ROOTS] == two
    assert f"{tmp_path / 'a'} and {tmp_path / 'b'} only" in access.paths_words()[0]
