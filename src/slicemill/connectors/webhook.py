"""Webhooks: one HTTP POST to an address.

Only the given address is contacted: redirects are not followed and no proxy is used. A host name is resolved
once per POST, and the connection uses a checked address, so a later change of the name has no effect. Some
addresses are rejected: link-local ones, where clouds serve secrets of the machine, multicast and unspecified
ones.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from slicemill.errors import SlicemillError

TIMEOUT_S = 10.0
_SHOWN = 200
# Clouds serve secrets of the machine at these addresses, too.
_SECRETS = (ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200"))


class WebhookError(SlicemillError):
    """Failed POST; `after_s` is the server's Retry-After, if any."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


def place_of(url: str) -> str:
    """Return scheme, host and port of a URL, without possible secrets.

    >>> place_of("https://hooks.example.org/T0/B1/secret"), place_of("http://localhost:9093/x")
    ('https://hooks.example.org', 'http://localhost:9093')
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def host_and_port(url: str) -> tuple[str, int]:
    """Return host and port of a URL, with the scheme's default port.

    >>> host_and_port("https://Example.org/x"), host_and_port("http://[::1]:8080")
    (('example.org', 443), ('::1', 8080))
    """
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or (443 if parts.scheme.lower() == "https" else 80)


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
    """POST JSON to a webhook; raise WebhookError unless the status is 2xx."""
    parts = urlsplit(url)
    host, port = host_and_port(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.sock = _connected(host, port, timeout_s, tls=parts.scheme.lower() == "https")
        named = {"Host": parts.netloc, "Content-Type": "application/json", "Connection": "close", **headers}
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        content = answer.read(_SHOWN)
    except (OSError, http.client.HTTPException) as problem:
        raise WebhookError(
            f"{place_of(url)} cannot be reached: {problem or type(problem).__name__}"
        ) from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        shown = " ".join(content.decode("utf-8", "replace").split())
        said = f": {shown}" if shown else ""
        raise WebhookError(f"{place_of(url)} answers {answer.status} {answer.reason}{said}", _after(answer))


def _connected(host: str, port: int, timeout_s: float, *, tls: bool) -> socket.socket:
    problem: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        _check_address(str(address[0]), host)
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(timeout_s)
            found.connect(address)
            return ssl.create_default_context().wrap_socket(found, server_hostname=host) if tls else found
        except OSError as error:
            found.close()
            problem = error
    raise problem or OSError(f"{host} has no address")


def _check_address(text: str, host: str) -> None:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_link_local or address.is_multicast or address.is_unspecified or address in _SECRETS:
        raise WebhookError(f"{host} is {address}, an address that webhooks never reach")


def _after(answer: http.client.HTTPResponse) -> float | None:
    """Return the seconds of a Retry-After header; dates are ignored."""
    said = (answer.getheader("Retry-After") or "").strip()
    return float(said) if said.isdigit() else None
