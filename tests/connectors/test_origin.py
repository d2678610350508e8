"""A source clause has the same meaning in Spark and in the reference engine: formats, options, paths."""

import gzip
from pathlib import Path

import pytest

from slicemill.catalog.catalog import SourceSpec
from slicemill.connectors.finite import read_rows
from slicemill.connectors.origin import origin_of
from slicemill.errors import SlicemillError
from slicemill.types import Column, Schema, Type

SCHEMA = Schema((Column("sensor", Type("VARCHAR")), Column("temp", Type("DOUBLE"))))


@pytest.mark.parametrize(
    ("url", "form", "options"),
    [
        ("port4445", "tcp", {"host": "localhost", "port": "4445"}),
        ("tcp://[::1]:99?lines=csv", "tcp", {"host": "::1", "port": "99", "lines": "csv"}),
        ("nexmark://bid?rate=5", "nexmark", {"stream": "bid", "rate": "5"}),
        ("kafka://h:1/t", "kafka", {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}),
        ("rate://?rowsPerSecond=5", "rate", {"rowsPerSecond": "5"}),
        ("file:///a%20b/c.csv?header=true", "csv", {"path": "file:///a%20b/c.csv", "header": "true"}),
        ("c.json.gz", "json", {"path": "c.json.gz"}),
        ("folder?format=parquet", "parquet", {"path": "folder"}),
    ],
)
def test_a_url_determines_format_and_options(url: str, form: str, options: dict[str, str]) -> None:
    origin = origin_of(SourceSpec(url=url), "s")
    assert (origin.format, dict(origin.options)) == (form, options)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("a#b%20c.csv", "/in/a#b%20c.csv"),
        ("/a/#/x.csv", "/a/#/x.csv"),
        ("file:a%23b.csv", "/in/a#b.csv"),
        ("FILE:///a%20b/#/c.csv", "/a b/#/c.csv"),
        ("file://localhost/a.csv", "/a.csv"),
        ("s3a://bucket/a.csv", None),
    ],
)
def test_a_path_has_the_same_meaning_in_a_source_and_in_options(text: str, file: str | None) -> None:
    for spec in (SourceSpec(url=text), SourceSpec(format="csv", options=(("path", text),))):
        found = origin_of(spec, "s", Path("/in"))
        assert found.file == (None if file is None else Path(file))


@pytest.mark.parametrize(
    "text", ["file://elsewhere/a.csv", "a\tb.csv", "file:a%00b.csv", "a\ud800.csv", "tcp://[::1"]
)
def test_an_impossible_path_is_rejected(text: str) -> None:
    with pytest.raises(SlicemillError):
        origin_of(SourceSpec(url=text), "s")


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    folder = tmp_path / "readings"
    folder.mkdir()
    (folder / "1.csv").write_text("sensor;temp\na;1.5\n")
    with gzip.open(folder / "2.csv.gz", "wt") as packed:
        packed.write("sensor;temp\nb;2.5\n")
    (folder / "_done").write_text("no data")
    return folder


@pytest.mark.parametrize("query", ["?header=true&sep=;", "?format=csv&header=true&sep=;"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_is_read_with_the_options_of_its_url(readings: Path, query: str, scheme: str) -> None:
    rows = list(read_rows(SourceSpec(url=f"{scheme}{readings}{query}"), SCHEMA))
    assert rows == [("a", 1.5), ("b", 2.5)]


def test_relative_paths_start_at_the_folder_of_the_script(readings: Path) -> None:
    spec = SourceSpec(url="readings?header=true&sep=;")
    assert len(list(read_rows(spec, SCHEMA, readings.parent))) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (SourceSpec(url="nowhere"), "there is no file or folder nowhere"),
        (SourceSpec(url="tcp://localhost:1"), "cannot read tcp://localhost:1 without Spark, only csv, "),
        (SourceSpec(url="x.orc"), "cannot read x.orc without Spark"),
        (SourceSpec(), "this stream has no SOURCE"),
        (SourceSpec(format="csv"), r"USING csv needs OPTIONS \(path"),
        (SourceSpec(format=""), "the format of this stream is empty"),
        (SourceSpec(format="csv", options=(("path", "s3://b/x.csv"),)), "it is not on this machine"),
    ],
)
def test_an_unreadable_source_is_reported_with_a_reason(spec: SourceSpec, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        list(read_rows(spec, SCHEMA))


def test_the_format_of_an_empty_folder_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="cannot be derived from file names"):
        origin_of(SourceSpec(url=str(tmp_path)), "s")
