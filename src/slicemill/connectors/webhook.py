"""Webhooks: HTTP POST requests to a URL, for alerts.

Only the given host is contacted. Redirects are not followed, and no proxy is used. A host name is resolved
once per POST, and all its addresses are checked before a connection is opened to one of them. So a later
change of the DNS record has no effect. Some addresses are always rejected: link-local addresses, where clouds
serve secrets of the machine, multicast addresses and unspecified addresses. A server also rejects private
addresses that its operator has not allowed (`server.permissions`).
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from slicemill.errors import SlicemillError

TIMEOUT_S = 10.0
_SHOWN = 200
# Addresses other than link-local where clouds serve secrets of the machine: Amazon, Alibaba, Azure, Google,
# Oracle.
_SECRETS = tuple(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "fd20:ce::254", "192.0.0.192"),
    )
)
# IPv6 networks whose last four bytes are an IPv4 address: IPv4-compatible addresses and NAT64.
_WITH_IPV4 = (ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b::/96"))

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# Result of `socket.getaddrinfo`: family, kind and protocol of the socket, canonical name, address.
Resolved: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
Resolver: TypeAlias = Callable[[str, int], Sequence[Resolved]]


class WebhookError(SlicemillError):
    """Error: a POST to a webhook has failed.

    `after_s` is the time in the server's Retry-After header, if any.
    """

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


def url_origin(url: str) -> str:
    """Return scheme, host and port of a URL, without secret parts.

    >>> url_origin("https://hooks.example.org/T0/B1/secret"), url_origin("http://localhost:9093/x")
    ('https://hooks.example.org', 'http://localhost:9093')
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def host_and_port(url: str) -> tuple[str, int]:
    """Return the host and port of a URL, with the default port of its scheme.

    >>> host_and_port("https://Example.org/x"), host_and_port("http://[::1]:8080")
    (('example.org', 443), ('::1', 8080))
    """
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or (443 if parts.scheme.lower() == "https" else 80)


def resolved(host: str, port: int) -> Sequence[Resolved]:
    """Resolve a host name to its addresses."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
    *,
    check: Callable[[Address], None] = lambda _: None,
    resolve: Resolver = resolved,
) -> None:
    """POST JSON to a webhook.

    Raise WebhookError if the status is not 2xx. `check` raises an error for an address that must not be
    contacted.
    """
    parts = urlsplit(url)
    host, port = host_and_port(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        found = resolve(host, port)
        for address in (meant for one in found for meant in _meant(str(one[4][0]))):
            _check_address(address, host)
            check(address)
        connection.sock = _connect(found, timeout_s, host if parts.scheme.lower() == "https" else None)
        named = {"Host": parts.netloc, "Content-Type": "application/json", "Connection": "close", **headers}
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        content = answer.read(_SHOWN)
    except (OSError, http.client.HTTPException) as problem:
        raise WebhookError(
            f"{url_origin(url)} cannot be reached: {problem or type(problem).__name__}"
        ) from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        shown = " ".join(content.decode("utf-8", "replace").split())
        said = f": {shown}" if shown else ""
        raise WebhookError(
            f"{url_origin(url)} answers {answer.status} {answer.reason}{said}", _retry_after_s(answer)
        )


def _connect(addresses: Sequence[Resolved], timeout_s: float, tls_name: str | None) -> socket.socket:
    """Connect to the first address that accepts the connection.

    Use TLS if `tls_name` is set.
    """
    problem = OSError("its name has no address")
    for family, kind, protocol, _, address in addresses:
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(timeout_s)
            found.connect(address)
            if tls_name is None:
                return found
            return ssl.create_default_context().wrap_socket(found, server_hostname=tls_name)
        except OSError as error:
            found.close()
            problem = error
    raise problem


def _meant(text: str) -> Iterator[Address]:
    """Yield the addresses that a text denotes: an IPv6 address may encode an IPv4 address.

    >>> [str(one) for one in _meant("::ffff:10.0.0.1")], [str(one) for one in _meant("2002:a00:1::")]
    (['10.0.0.1'], ['2002:a00:1::', '10.0.0.1'])
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if not isinstance(address, ipaddress.IPv6Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield address.teredo[1]
    if int(address) > 1 and any(address in network for network in _WITH_IPV4):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _check_address(address: Address, host: str) -> None:
    if address.is_link_local or address.is_multicast or address.is_unspecified or address in _SECRETS:
        raise WebhookError(f"{host} is {address}, an address that webhooks never reach")


def _retry_after_s(answer: http.client.HTTPResponse) -> float | None:
    """Return the seconds in a Retry-After header, or None; ignore dates."""
    said = (answer.getheader("Retry-After") or "").strip()
    return float(said) if said.isdigit() else None
