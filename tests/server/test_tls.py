"""TLS over both protocols, with a certificate that clients check."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import trustme

from server.conftest import bid
from slicemill.errors import SlicemillError
from slicemill.server.network import Certificate, ServerSockets, serving
from slicemill.server.service import MillService


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return made


@pytest.fixture
def listening(service: MillService, authority: trustme.CA, tmp_path: Path) -> Iterator[ServerSockets]:
    issued = authority.issue_cert("localhost")
    file, key = str(tmp_path / "server.pem"), str(tmp_path / "server.key")
    for index, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(file, append=index > 0)
    issued.private_key_pem.write_to_path(key)
    made = ServerSockets("localhost", postgres_port=0, certificate=Certificate(file, key))
    with serving(service, made):
        yield made


@pytest.fixture
def port(listening: ServerSockets) -> int:
    assert listening.postgres is not None
    found: int = listening.postgres.getsockname()[1]
    return found


def test_http_clients_verify_the_certificate(
    listening: ServerSockets, service: MillService, authority: trustme.CA
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


def test_postgresql_clients_verify_the_certificate(
    listening: ServerSockets, service: MillService, authority: trustme.CA, tmp_path: Path
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


SSL_REQUEST = struct.pack("!ii", 8, 80877103)
STARTUP = struct.pack("!ii", 17, 3 << 16) + b"user\0me\0\0"


def raw(listening: ServerSockets) -> socket.socket:
    assert listening.postgres is not None
    return socket.create_connection(("localhost", listening.postgres.getsockname()[1]), 30)


def received(connection: socket.socket) -> bytes:
    """Return all bytes that the server sends until it closes the connection."""
    found = b""
    try:
        while part := connection.recv(1000):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_a_session_without_tls_is_rejected(listening: ServerSockets, port: int) -> None:
    with pytest.raises(
        psycopg.OperationalError, match="this server requires TLS; connect with sslmode=require"
    ):
        psycopg.connect(f"host=localhost port={port} user=me dbname=mill sslmode=disable")
    with raw(listening) as client:
        client.sendall(STARTUP)
        assert b"28000" in received(client)
    with raw(listening) as client:
        client.sendall(SSL_REQUEST)
        assert client.recv(1) == b"S"
        client.sendall(STARTUP)  # The server expects a TLS handshake here.
        assert b"R\0\0\0\x08" not in received(client)


@pytest.mark.parametrize("injected", [b"Q", STARTUP, SSL_REQUEST])
def test_bytes_before_the_handshake_close_the_connection(
    listening: ServerSockets, authority: trustme.CA, injected: bytes
) -> None:
    """Such bytes can come from an attacker (CVE-2021-23214)."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with raw(listening) as client:
        client.sendall(SSL_REQUEST + injected)
        assert client.recv(1) == b"S"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(client, server_hostname="localhost")


def test_a_second_tls_request_is_rejected(listening: ServerSockets, authority: trustme.CA) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with raw(listening) as client:
        client.sendall(SSL_REQUEST)
        assert client.recv(1) == b"S"
        with context.wrap_socket(client, server_hostname="localhost") as encrypted:
            encrypted.sendall(SSL_REQUEST)
            assert received(encrypted) == b""


def test_a_cancel_request_needs_no_tls(
    listening: ServerSockets, authority: trustme.CA, service: MillService
) -> None:
    """libpq cancels without TLS; the secret is useful only while the statement runs."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    bid(service, (1, 20, 1))
    with raw(listening) as client:
        client.sendall(SSL_REQUEST)
        assert client.recv(1) == b"S"
        with context.wrap_socket(client, server_hostname="localhost") as encrypted:
            encrypted.sendall(STARTUP)
            began = b""
            while not began.endswith(b"Z\0\0\0\x05I"):
                began += encrypted.recv(1000)
            secret = began.partition(b"K\0\0\0\x0c")[2][:8]
            encrypted.sendall(b"Q" + struct.pack("!i", 28) + b"SUBSCRIBE dear SINCE 0 \0")
            rows = b""
            while b"20" not in rows:
                rows += encrypted.recv(1000)
            with raw(listening) as cancelling:
                cancelling.sendall(struct.pack("!ii", 16, 80877102) + secret)
                assert received(cancelling) == b""
            assert b"57014" in encrypted.recv(1000)


def test_files_without_a_certificate_are_reported_at_start(listening: ServerSockets, tmp_path: Path) -> None:
    file, key = str(tmp_path / "server.pem"), str(tmp_path / "server.key")
    with pytest.raises(SlicemillError, match=r"cannot read .*missing\.key: No such file"):
        ServerSockets(certificate=Certificate(file, str(tmp_path / "missing.key")))
    with pytest.raises(SlicemillError, match="not a certificate and its key in PEM format"):
        ServerSockets(certificate=Certificate(key, file))
