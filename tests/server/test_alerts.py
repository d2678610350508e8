"""Alerts of a server: permission to create them, allowed webhook hosts, and listings."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

import httpx
import pytest

from server.conftest import bid
from slicemill.server.auth import PermissionDenied, Principal, UserRole
from slicemill.server.permissions import ClientPermissions
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from support.webhooks import listening_webhook

QUIET = "CREATE ALERT quiet ON dear WHEN silence > INTERVAL 1 MINUTE WEBHOOK 'https://h/secret'"


def test_alert_listings_hide_the_path_of_the_webhook(user: UserSession, client: httpx.Client) -> None:
    user.execute(QUIET)
    (entry,) = client.get("/v1/alerts").json()
    assert entry["state"] == "ok" and entry["on"] == "dear" and entry["error"] is None
    assert entry["condition"] == "silence > INTERVAL 1 MINUTE"
    assert entry["webhook"] == "https://h"
    (answer,) = user.execute("SHOW ALERTS")
    assert answer.table is not None and answer.table.column("name").to_pylist() == ["quiet"]
    (answer,) = user.execute("SHOW CREATE ALERT quiet")
    assert answer.table is not None and answer.table.column(0).to_pylist() == [QUIET]


def test_an_alert_and_a_query_can_have_the_same_name(user: UserSession) -> None:
    user.execute("CREATE ALERT dear ON dear WEBHOOK 'http://h/'")
    (answer,) = user.execute("SHOW CREATE QUERY dear")
    assert answer.table is not None and "SELECT" in answer.table.column(0).to_pylist()[0]
    user.execute("DROP ALERT dear")
    (answer,) = user.execute("SHOW CREATE dear")
    assert answer.table is not None and "SELECT" in answer.table.column(0).to_pylist()[0]


def test_an_alert_delivers_rows_while_the_server_runs(service: MillService, user: UserSession) -> None:
    with listening_webhook() as hook:
        user.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
        service.mill.alerts.start()
        bid(service, (1, 50, 1))
        (message,) = hook.received(1)
        assert message["rows"][0]["item"] == 1
        service.mill.alerts.stop()


def test_an_unreachable_webhook_is_a_problem_of_the_server(service: MillService, user: UserSession) -> None:
    with listening_webhook() as hook:
        url = hook.url
    user.execute(f"CREATE ALERT a ON dear WEBHOOK '{url}'")
    bid(service, (1, 50, 1))
    service.mill.alerts.deliver_new()
    (problem,) = service.problems()
    assert problem.startswith("alert a (http://127.0.0.1:") and "delivery is retried" in problem


@pytest.mark.parametrize(
    ("url", "allowed", "needed"),
    [
        ("https://hooks.example.org/x", "hooks.example.org", None),
        ("https://Hooks.Example.org:443/x", "hooks.example.org", None),
        ("https://hooks.example.org:8443/x", "hooks.example.org:8443", None),
        ("http://[::1]:9093/x", "[::1]:9093", None),
        ("https://hooks.example.org:8443/x", "hooks.example.org", "hooks.example.org:8443"),
        ("https://example.org/x", "hooks.example.org", "example.org"),
        ("http://hooks.example.org.evil.net/", "hooks.example.org", "hooks.example.org.evil.net"),
        ("http://127.0.0.1:8080/v1/statements", "hooks.example.org", "127.0.0.1:8080"),
        ("http://localhost/", "127.0.0.1", "localhost"),
    ],
)
def test_client_statements_can_name_only_allowed_webhook_hosts(
    service: MillService, url: str, allowed: str, needed: str | None
) -> None:
    service.allowed = ClientPermissions(webhooks=frozenset([allowed]))
    operator = UserSession(service, Principal("ann", UserRole.OPERATOR))
    text = f"CREATE ALERT a ON dear WEBHOOK '{url}'"
    if needed is None:
        operator.execute(text)
        assert "a" in service.mill.catalog.alerts
        return
    with pytest.raises(PermissionDenied, match=f"--allow-webhook {needed}$".replace("[", r"\[")):
        operator.execute(text)
    assert service.mill.catalog.alerts == {}


@pytest.mark.parametrize(
    ("host", "address", "allowed", "needed"),
    [
        ("hooks.example.org", "93.184.216.34", ["hooks.example.org"], None),
        ("hooks.example.org", "127.0.0.1", ["hooks.example.org"], "127.0.0.1"),
        ("hooks.example.org", "::1", ["hooks.example.org"], "[::1]"),
        ("hooks.example.org", "10.0.0.7", ["hooks.example.org"], "10.0.0.7"),
        ("hooks.example.org:8443", "fd00::7", ["hooks.example.org:8443"], "[fd00::7]:8443"),
        ("hooks.example.org", "10.0.0.7", ["hooks.example.org", "10.0.0.7"], None),
        ("hooks.example.org:8443", "10.0.0.7", ["hooks.example.org:8443", "10.0.0.7"], "10.0.0.7:8443"),
        ("localhost", "127.0.0.1", ["localhost"], None),
        ("localhost", "10.0.0.7", ["localhost"], "10.0.0.7"),
        ("127.0.0.1", "127.0.0.1", ["127.0.0.1"], None),
        ("[0:0::1]", "::1", ["[0:0::1]"], None),
        ("alerts.corp", "10.0.0.7", [], None),  # an alert of the administrator's start-up script
    ],
)
def test_an_allowed_host_that_resolves_to_a_private_address_needs_permission(
    host: str, address: str, allowed: list[str], needed: str | None
) -> None:
    checking = ClientPermissions(webhooks=frozenset(allowed))
    if needed is None:
        checking.check_address(f"https://{host}/x", ip_address(address))
        return
    with pytest.raises(PermissionDenied, match=f"--allow-webhook {re.escape(needed)} as well$"):
        checking.check_address(f"https://{host}/x", ip_address(address))


def test_a_public_host_name_does_not_lead_a_webhook_to_the_server_itself(
    service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolve the name to the loopback address when the alert is delivered."""
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, port, **kinds: real("127.0.0.1", port, **kinds))
    with listening_webhook() as hook:
        name = hook.url.removeprefix("http://").replace("127.0.0.1", "hooks.example.org").split("/")[0]
        service.allowed = ClientPermissions(webhooks=frozenset([name]))
        operator = UserSession(service, Principal("ann", UserRole.OPERATOR))
        operator.execute(f"CREATE ALERT a ON dear WEBHOOK 'http://{name}/x'")
        bid(service, (1, 50, 1))
        service.mill.alerts.deliver_new()
        (problem,) = service.problems()
        assert "hooks.example.org resolves to 127.0.0.1, which is not a public address" in problem
        assert hook.asked == []


def test_alerts_need_the_operator_role_and_access_to_the_names_of_their_queries(
    service: MillService, user: UserSession
) -> None:
    with pytest.raises(PermissionDenied):
        UserSession(service, Principal("rob", UserRole.READER)).execute(QUIET)
    user.execute("CREATE QUERY sales_all AS SELECT item FROM bid")
    seller = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    for text in (
        QUIET,
        "CREATE ALERT sales_a ON dear WEBHOOK 'http://h/'",
        "CREATE ALERT sales_a ON ANY QUERY WHEN rows > 1 WEBHOOK 'http://h/'",
    ):
        with pytest.raises(PermissionDenied):
            seller.execute(text)
    seller.execute("CREATE ALERT sales_a ON sales_all WEBHOOK 'http://h/'")
    user.execute("CREATE ALERT sales_b ON ANY QUERY WHEN rows > 1 WEBHOOK 'http://h/'; " + QUIET)
    assert [one.name for one in seller.alerts()] == ["sales_a"]
    (answer,) = seller.execute("SHOW ALERTS")
    assert answer.table is not None and answer.table.num_rows == 1
    with pytest.raises(PermissionDenied):
        seller.execute("DROP ALERT quiet")
