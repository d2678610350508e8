"""Webhooks over real connections: what is sent, what counts as taken, and which addresses are never asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from slicemill.connectors import webhook
from slicemill.connectors.webhook import WebhookError, post
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
def test_what_is_not_answered_with_2xx_was_not_taken(hook: Webhook, status: int) -> None:
    hook.answer = lambda _: status
    with pytest.raises(WebhookError, match=f"answers {status}"):
        post(hook.url, b"{}", {})
    assert len(hook.asked) == 1  # a redirect is not followed


def test_an_error_does_not_show_what_stands_behind_the_host(hook: Webhook) -> None:
    hook.answer = lambda _: 500
    with pytest.raises(WebhookError) as told:
        post(hook.url, b"{}", {})
    assert "key=1" not in str(told.value)


def test_a_webhook_says_when_it_wants_to_be_asked_again(hook: Webhook) -> None:
    hook.answer, hook.retry_after = (lambda _: 429), "7"
    with pytest.raises(WebhookError) as told:
        post(hook.url, b"{}", {})
    assert told.value.after_s == 7


def test_a_port_where_nobody_listens_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(WebhookError, match=r"cannot be reached: .*refused"):
            post(f"http://127.0.0.1:{taken.getsockname()[1]}/", b"{}", {})


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "224.0.0.1", "0.0.0.0"],
)
def test_some_addresses_are_never_reached(host: str) -> None:
    with pytest.raises(WebhookError, match="never reach"):
        post(f"http://{host}/latest/meta-data", b"{}", {}, timeout_s=1)


def test_a_name_for_such_an_address_leads_nowhere_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(webhook.socket, "getaddrinfo", looked_up)
    with pytest.raises(WebhookError, match=r"example\.org is 169\.254\.169\.254"):
        post("http://example.org/", b"{}", {})
