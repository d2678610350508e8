"""Options that Spark rejects are errors of the user: a message without a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slicemill.connectors.spark.open import load_frame
from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:x;create=true"


@pytest.mark.parametrize(
    ("form", "options", "reason"),
    [
        ("jdbc", {"url": URL}, "Option 'dbtable' or 'query' is required"),
        ("jdbc", {"dbtable": "t"}, "Option 'url' is required"),
        ("jdbc", {"url": "nothing", "dbtable": "t"}, "No suitable driver"),
        ("jdbc", {"url": URL, "dbtable": "t", "driver": "no.such"}, "no.such"),
        ("jdbc", {"url": URL, "dbtable": "t", "fetchsize": "x"}, 'For input string: "x"'),
        ("jdbc", {"url": URL, "dbtable": "t", "isolationLevel": "x"}, "isolationLevel"),
        ("rate", {"rowsPerSecond": "x"}, 'For input string: "x"'),
    ],
)
def test_an_option_that_spark_rejects_is_reported_with_the_reason_of_spark(
    spark: SparkSession, form: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(SlicemillError) as caught:
        load_frame(spark.read, form, options)
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; correct its options")
    assert "\n" not in str(caught.value)


def test_a_batch_format_cannot_be_a_stream(spark: SparkSession) -> None:
    with pytest.raises(SlicemillError, match="jdbc does not support streamed reading"):
        load_frame(spark.readStream, "jdbc", {"url": URL, "dbtable": "t"})


def test_an_error_about_an_option_does_not_show_a_secret(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_SECRET_SIZE", "hush")
    with pytest.raises(SlicemillError) as caught:
        load_frame(spark.read, "jdbc", {"url": URL, "dbtable": "t", "fetchsize": "${SLICEMILL_SECRET_SIZE}"})
    assert "hush" not in str(caught.value)
