"""`get_json_object`: paths and texts that `spark_cases` does not have."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill.functions.json import get_json_object


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ('{"a b": {"c.d": [1, {"e": "x"}]}}', "$['a b']['c.d'][1].e", "x"),
        ('{"a": {"t": "line\\nbreak \\u00e9 \\u0001"}}', "$.a", '{"t":"line\\nbreak é \\u0001"}'),
        ('{"a": 1, "a": 2}', "$.a", "1"),
        ('{"a": 1.50, "b": 12345678901234567890}', "$", '{"a":1.5,"b":12345678901234567890}'),
        ('{"a": [true, null, false]}', "$.a", "[true,null,false]"),
        ('{"a": NaN}', "$.a", None),
        ("[" * 100_000, "$", None),
        ('{"a": [1]}', "$.a[1]", None),
        ('{"a": "1"}', "$.a.b", None),
    ],
)
def test_get_json_object_returns_the_value_at_a_path(text: str, path: str, value: str | None) -> None:
    assert get_json_object(text, path) == value


@pytest.mark.parametrize("path", ["a", "$.*", "$[*]", "$..a", "$[a]"])
def test_an_unsupported_json_path_is_rejected(path: str) -> None:
    with pytest.raises(SlicemillError, match=r"\$\.a\.b\[0\]"):
        bind(
            "CREATE STREAM s (j varchar, ts timestamp) ORDER BY ts;"
            f"CREATE QUERY q AS SELECT get_json_object(j, '{path}') AS x FROM s"
        )
