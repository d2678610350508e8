"""Webhooks over real connections: requests, accepted answers, and addresses that are never contacted."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from slicemill.connectors.webhook import Address, Resolved, Resolver, WebhookError, post
from slicemill.errors import SlicemillError
from support.webhooks import Webhook, listening_webhook


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening_webhook() as made:
        yield made


def test_a_body_is_posted_with_its_headers(hook: Webhook) -> None:
    post(hook.url, b'{"n": 1}', {"Idempotency-Key": "a-1"})
    assert hook.taken == [{"n": 1}]
    assert hook.headers[0]["Idempotency-Key"] == "a-1"
    assert hook.headers[0]["Content-Type"] == "application/json"
    assert hook.headers[0]["Host"] in hook.url


@pytest.mark.parametrize("status", [302, 400, 404, 500])
def test_an_answer_other_than_2xx_is_an_error(hook: Webhook, status: int) -> None:
    hook.answer = lambda _: status
    with pytest.raises(WebhookError, match=f"answers {status}"):
        post(hook.url, b"{}", {})
    assert len(hook.asked) == 1  # redirects are not followed


def test_an_error_does_not_show_the_path_of_the_url(hook: Webhook) -> None:
    hook.answer = lambda _: 500
    with pytest.raises(WebhookError) as told:
        post(hook.url, b"{}", {})
    assert "key=1" not in str(told.value)


def test_the_retry_after_header_delays_the_next_request(hook: Webhook) -> None:
    hook.answer, hook.retry_after = (lambda _: 429), "7"
    with pytest.raises(WebhookError) as told:
        post(hook.url, b"{}", {})
    assert told.value.after_s == 7


def test_a_refused_connection_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(WebhookError, match=r"cannot be reached: .*refused"):
            post(f"http://127.0.0.1:{taken.getsockname()[1]}/", b"{}", {})


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "224.0.0.1", "0.0.0.0"],
)
def test_link_local_metadata_and_multicast_addresses_are_never_contacted(host: str) -> None:
    with pytest.raises(WebhookError, match="never reach"):
        post(f"http://{host}/latest/meta-data", b"{}", {}, timeout_s=1)


def resolving_to(*addresses: str) -> Resolver:
    """Return a resolver that resolves every name to these addresses."""

    def resolve(_: str, port: int) -> list[Resolved]:
        found: list[Resolved] = []
        for one in addresses:
            family = socket.AF_INET6 if ":" in one else socket.AF_INET
            found.append((family, socket.SOCK_STREAM, 6, "", (one, port)))
        return found

    return resolve


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "fe80::1%lo",
    ],
)
def test_a_name_that_resolves_to_a_forbidden_address_is_rejected(address: str) -> None:
    with pytest.raises(WebhookError, match=r"^example\.org is .*never reach"):
        post("http://example.org/", b"{}", {}, resolve=resolving_to(address))


def test_a_name_with_one_forbidden_address_is_rejected(hook: Webhook) -> None:
    url = hook.url.replace("127.0.0.1", "example.org")
    with pytest.raises(WebhookError, match=r"example\.org is 169\.254\.1\.1"):
        post(url, b"{}", {}, resolve=resolving_to("127.0.0.1", "169.254.1.1"))
    assert hook.asked == []


def test_a_connection_uses_a_checked_address_and_the_host_of_the_url(hook: Webhook) -> None:
    """The name is resolved once, so a later change of the answer has no effect."""
    answers = iter([resolving_to("127.0.0.1"), resolving_to("169.254.169.254")])
    checked: list[str] = []
    port = hook.url.split(":")[2].split("/")[0]
    post(
        hook.url.replace("127.0.0.1", "hooks.example.org"),
        b"{}",
        {},
        check=lambda address: checked.append(str(address)),
        resolve=lambda host, port: next(answers)(host, port),
    )
    assert checked == ["127.0.0.1"] and hook.taken == [{}]
    assert hook.headers[0]["Host"] == f"hooks.example.org:{port}"


def test_an_address_without_permission_is_not_contacted(hook: Webhook) -> None:
    def refuse(address: Address) -> None:
        if address.is_loopback:
            raise SlicemillError(f"{address} is not allowed")

    url = hook.url.replace("127.0.0.1", "example.org")
    for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"]):
        with pytest.raises(SlicemillError, match=r"127\.0\.0\.1 is not allowed"):
            post(url, b"{}", {}, check=refuse, resolve=resolving_to(*addresses))
    assert hook.asked == []


def test_the_next_address_is_used_if_an_address_does_not_answer(hook: Webhook) -> None:
    url = hook.url.replace("127.0.0.1", "example.org")
    post(url, b"{}", {}, resolve=resolving_to("::1", "127.0.0.1"))
    assert hook.taken == [{}]
    with pytest.raises(WebhookError, match="its name has no address"):
        post(url, b"{}", {}, resolve=resolving_to())


@pytest.mark.parametrize("name", ["hooks.example.org", "other.example.org"])
def test_tls_verifies_the_host_name_of_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hooks.example.org").configure_cert(context)
    named: list[str | None] = []
    context.sni_callback = lambda _, asked, __: named.append(asked)
    with listening_webhook(context) as secure:
        url = secure.url.replace("127.0.0.1", name)
        if name == "hooks.example.org":
            post(url, b"{}", {}, resolve=resolving_to("127.0.0.1"))
            assert secure.taken == [{}]
        else:
            with pytest.raises(WebhookError, match="certificate verify failed"):
                post(url, b"{}", {}, resolve=resolving_to("127.0.0.1"))
            assert secure.asked == []
    assert named == [name]
