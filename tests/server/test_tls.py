"""TLS over both protocols, with a certificate that clients check."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import trustme

from server.conftest import bid
from slicemill.server.network import Certificate, Listening, serving
from slicemill.server.service import MillService


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return made


@pytest.fixture
def listening(service: MillService, authority: trustme.CA, tmp_path: Path) -> Iterator[Listening]:
    issued = authority.issue_cert("localhost")
    file, key = str(tmp_path / "server.pem"), str(tmp_path / "server.key")
    for place, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(file, append=place > 0)
    issued.private_key_pem.write_to_path(key)
    made = Listening("localhost", postgres_port=0, certificate=Certificate(file, key))
    with serving(service, made):
        yield made


def test_http_clients_check_the_certificate(
    listening: Listening, service: MillService, authority: trustme.CA
) -> None:
    port = listening.http.getsockname()[1]
    assert listening.url.startswith("https://")
    bid(service, (1, 20, 1))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    url = f"https://localhost:{port}/v1/queries/dear/results"
    assert httpx.get(url, verify=context).json()["rows"][0]["price"] == 20
    for refused, verify in ((url, True), (url.replace("localhost", "127.0.0.1"), context)):
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(refused, verify=verify)
    with pytest.raises(httpx.HTTPError):
        httpx.get(url.replace("https", "http"))


def test_clients_of_postgresql_check_the_certificate(
    listening: Listening, service: MillService, authority: trustme.CA, tmp_path: Path
) -> None:
    assert listening.postgres is not None
    port = listening.postgres.getsockname()[1]
    bid(service, (1, 20, 1))

    def connected(host: str, root: Path) -> psycopg.Connection:
        return psycopg.connect(
            host=host, port=port, user="x", dbname="x", sslmode="verify-full", sslrootcert=str(root)
        )

    with connected("localhost", tmp_path / "authority.pem") as made:
        assert made.execute("SELECT price FROM dear").fetchall() == [(20,)]
        assert made.pgconn.ssl_in_use
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for host, root in (("127.0.0.1", tmp_path / "authority.pem"), ("localhost", other)):
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            connected(host, root)
