"""Passwords in addresses, options and statements: found, masked, or taken from the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill.secrets import contains_secret, mask_secrets, redact, redact_address, resolve_secrets

SECRET = "s3cret"
# Addresses with a password, well-formed and malformed.
ADDRESSES = [
    "postgres://ada:s3cret@db/shop",
    "POSTGRES://ada:s3cret@db/shop?table=t",
    "postgres://ada:s3cret?x@db",
    "postgres://ada:s3cret/x@db",
    "postgres://ada:x@s3cret@db",
    "postgres://ada:s3 cret s3cret@db",
    "postgres://:s3cret@db",
    "postgres://db/shop?user=ada&password=s3cret",
    "postgres://db/shop?PASSWORD=s3cret&user=ada",
    "postgres://db/shop?p%61ssword=s3cret",
    "postgres://db/shop?sslpassword=s3cret",
    "postgres://ada:${HOME}s3cret@db",
    "postgres://ada:s3cret${SLICEMILL_SECRET_A}@db",
    "jdbc:sqlserver://db:1433;user=ada;password=s3cret",
    "jdbc:oracle:thin:scott/s3cret@//db:1521/shop",
    "kafka://ada:s3cret@host:9092/topic",
    "https://ada:s3cret@host/x.csv",
]
OPTIONS = [
    ("password", "s3cret"),
    ("kafka.ssl.key.password", "s3cret"),
    ("fs.s3a.secret.key", "s3cret"),
    ("fs.azure.account.key.x.dfs", "s3cret"),
    ("accessToken", "s3cret"),
    ("kafka.sasl.jaas.config", 'x.PlainLoginModule required username="ada" password="s3cret";'),
    ("kafka.sasl.jaas.config", "x.PlainLoginModule required username='ada' password='s3cret';"),
    ("url", "jdbc:postgresql://db/shop?user=ada&password=s3cret"),
]
HARMLESS = [
    ("", "postgres://ada@db:5432/shop?sslmode=require"),
    ("", "postgres://ada:${SLICEMILL_SECRET_SHOP}@db/shop"),
    ("", "postgres://db/shop?password=${SLICEMILL_SECRET_SHOP}"),
    ("", "tcp://localhost:4445?lines=csv"),
    ("", "kafka://host:9092/topic"),
    ("", "s3a://bucket/folder"),
    ("", "/data/a:b@c.csv"),
    ("password", "${SLICEMILL_SECRET_SHOP}"),
    ("kafka.sasl.jaas.config", 'x required username="ada" password="${SLICEMILL_SECRET_SHOP}";'),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://host/token"),
    ("path", "token.csv"),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_passwords_in_addresses_are_masked(address: str) -> None:
    assert contains_secret(address)
    assert SECRET not in redact_address(address)
    statement = f"CREATE QUERY q WITH (sink = '{address}') AS SELECT 'it''s' FROM s"
    for text in (statement, f"CREATE STREAM s (a int) SOURCE ‘{address}’", f"N'{address}' failed"):
        assert SECRET not in redact(text)
    assert redact(statement).startswith("CREATE QUERY q WITH (sink = '")
    assert redact(statement).endswith("') AS SELECT 'it''s' FROM s")
    assert SECRET not in redact(f"cannot connect to {address.replace(' ', '')}: timed out")


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_passwords_in_options_are_masked(name: str, value: str) -> None:
    assert contains_secret(value, name)
    literal = value.replace("'", "''")
    for spelled in (
        f"{name} '{literal}'",
        f"{name} = '{literal}'",
        f"'{name}' '{literal}'",
        f'"{name}"=\n‘{value}’',
    ):
        text = f"CREATE TABLE t (a int) USING jdbc OPTIONS (dbtable 't', {spelled}, header true)"
        assert SECRET not in redact(text)
        assert "dbtable 't'" in redact(text)
        assert redact(text).endswith(", header true)")


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_values_without_a_password_are_not_masked(name: str, value: str) -> None:
    assert not contains_secret(value, name)
    text = f"CREATE TABLE t (a int) USING x OPTIONS ({name or 'url'} '{value}')"
    assert redact(text) == text


def test_literals_of_queries_are_not_masked() -> None:
    text = "SELECT a FROM s WHERE token = 'abc' AND b = 'x@y' AND t > '12:30:00' AND c = 'token = 5'"
    assert redact(text) == text


@given(st.text("ab:@/?'\"$ {}\n‘", max_size=40))
def test_masked_text_has_the_length_and_lines_of_the_text(text: str) -> None:
    shown = mask_secrets(text)
    assert [len(line) for line in shown.split("\n")] == [len(line) for line in text.split("\n")]


def test_a_reference_has_the_value_of_its_variable() -> None:
    known = {"SLICEMILL_SECRET_SHOP": "p@ss"}
    assert resolve_secrets("u:${SLICEMILL_SECRET_SHOP}@h", environ=known) == "u:p@ss@h"
    assert resolve_secrets("${HOME} ${PATH}", environ={"HOME": "/x", "PATH": "y"}) == "${HOME} ${PATH}"
    with pytest.raises(SlicemillError, match="SLICEMILL_SECRET_SHOP is not set"):
        resolve_secrets("${SLICEMILL_SECRET_SHOP}", environ={})
