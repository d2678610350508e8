"""A home directory that had tokens never serves without one, even if its token file is lost or damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from typer.testing import CliRunner

from slicemill.cli import app
from slicemill.errors import SlicemillError
from slicemill.server.audit import AuditLog
from slicemill.server.auth import OWNER, Access
from slicemill.server.network import ServerSockets, check_address, serving
from slicemill.server.service import MillService

DAMAGED = {
    "half": b'[{"name": "ann", "ro',
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no list": b'{"name": "ann"}',
    "no objects": b"[1]",
    "no hash": b'[{"name": "ann", "role": "admin", "names": []}]',
    "unknown role": b'[{"name": "ann", "role": "root", "names": [], "salt": "", "hash": ""}]',
    "foreign hash": '[{"name": "a", "role": "admin", "names": [], "salt": "", "hash": "é"}]'.encode(),
    "deep": b"[" * 100_000,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def token(home: Path) -> str:
    return Access(home).add("ann", "admin", (), 0)


@pytest.fixture
def listening(service: MillService, home: Path, token: str) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made, Access(home)):
        yield made


def _file(home: Path) -> Path:
    return home / "access" / "tokens.json"


def _drop(home: Path) -> None:
    Access(home).drop("ann")


def _lose(home: Path) -> None:
    _file(home).unlink()


def _lose_folder(home: Path) -> None:
    shutil.rmtree(_file(home).parent)


def _make_folder(home: Path) -> None:
    _lose(home)
    _file(home).mkdir()


def _damage(content: bytes) -> Callable[[Path], None]:
    return lambda home: _file(home).write_bytes(content) and None


LOSSES = {"dropped": _drop, "lost": _lose, "no folder": _lose_folder, "a folder": _make_folder} | {
    name: _damage(content) for name, content in DAMAGED.items()
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_server_that_had_tokens_rejects_all_requests_without_them(
    listening: ServerSockets, home: Path, token: str, loss: str
) -> None:
    def status(shown: str | None) -> int:
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        return httpx.get(f"{listening.url}/v1/queries", headers=headers).status_code

    assert status(token) == 200
    LOSSES[loss](home)
    assert (status(None), status(token), status("wrong")) == (401, 401, 401)
    with pytest.raises(psycopg.OperationalError, match="not a valid token of this server"):
        psycopg.connect(f"{listening.postgres_url}/mill", user="me", password=token)
    health = httpx.get(f"{listening.url}/health")
    assert health.status_code == 200
    assert "all requests are rejected" in health.json()["problems"][0]
    assert str(home) not in health.text


def test_a_new_token_reopens_the_server(listening: ServerSockets, home: Path) -> None:
    _lose(home)
    assert httpx.get(f"{listening.url}/v1/queries").status_code == 401
    headers = {"Authorization": f"Bearer {Access(home).add('bob', 'reader', (), 0)}"}
    assert httpx.get(f"{listening.url}/v1/queries", headers=headers).status_code == 200
    assert httpx.get(f"{listening.url}/health").json()["problems"] == []


def test_a_home_directory_whose_last_token_was_dropped_stays_closed(home: Path, token: str) -> None:
    _drop(home)
    assert Access(home).principal(None) is None
    _lose(home)
    assert Access(home).principal(None) is None
    _file(home).with_name("closed").unlink()
    assert Access(home).principal(None) == OWNER  # Without the marker file the home directory counts as new.


def test_a_home_directory_of_an_earlier_version_that_lost_its_tokens_stays_closed(
    home: Path, token: str
) -> None:
    _file(home).with_name("closed").unlink()  # Earlier versions wrote only the token file.
    assert Access(home).principal(None) is None
    _lose(home)
    assert Access(home).principal(None) is None


def test_statements_leave_a_home_directory_without_tokens_open(service: MillService, home: Path) -> None:
    """The audit log is in the folder of the token file."""
    service.audit = AuditLog(home)
    with serving(service, ServerSockets(), Access(home)) as url:
        for text in ("CREATE STREAM s (n int)", "DROP STREAM s"):
            assert httpx.post(f"{url}/v1/statements", json={"text": text}).status_code == 200
    assert (home / "access" / "audit.jsonl").exists()
    assert Access(home).principal(None) == OWNER


def test_a_public_address_is_never_served_without_tokens(home: Path, token: str) -> None:
    access = Access(home)
    check_address("0.0.0.0", access)
    _lose(home)
    assert access.principal(None) is None
    unasked = Access(home)
    with pytest.raises(SlicemillError, match="slicemill token add"):
        check_address("0.0.0.0", unasked)
    assert unasked.principal(None) is None


def test_a_server_with_a_damaged_token_file_rejects_every_request(home: Path, token: str) -> None:
    _file(home).write_bytes(DAMAGED["half"])
    for host in ("127.0.0.1", "0.0.0.0"):
        access = Access(home)
        check_address(host, access)
        assert access.principal(token) is None
        assert "it is damaged" in access.problems()[0]


@pytest.mark.parametrize("arguments", [["ls"], ["add", "bob"], ["drop", "ann"]])
def test_the_token_command_reports_a_damaged_token_file(home: Path, token: str, arguments: list[str]) -> None:
    _file(home).write_bytes(DAMAGED["half"])
    result = CliRunner().invoke(app, ["token", *arguments, "--home", str(home)])
    assert isinstance(result.exception, SlicemillError)
    assert "access/tokens.json of the home directory cannot be read (it is damaged)" in str(result.exception)
    assert _file(home).read_bytes() == DAMAGED["half"]


def test_drop_of_the_last_token_warns_that_no_token_is_left(home: Path, token: str) -> None:
    result = CliRunner().invoke(app, ["token", "drop", "ann", "--home", str(home)])
    assert "no token is left" in result.output


def test_a_change_of_the_token_file_within_one_timestamp_is_noticed(home: Path, token: str) -> None:
    """The modification times of two changes can be equal."""
    access = Access(home)
    assert access.principal(token) is not None
    time_ns = _file(home).stat().st_mtime_ns
    _drop(home)
    os.utime(_file(home), ns=(time_ns, time_ns))
    assert access.principal(token) is None
