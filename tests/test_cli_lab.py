"""`slicemill lab` and `slicemill bench`, with and without the package slicemill-lab."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slicemill
from slicemill.cli import app, lab
from slicemill_lab.bench.benchmark import NAMES

COMMANDS = ("lab", "bench")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lab_command_is_found_and_gets_all_its_arguments(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"Usage: slicemill {command}" in shown.stdout


def test_options_reach_the_lab_in_their_order() -> None:
    shown = CliRunner().invoke(app, ["lab", "run", "--seed", "3", "slice-E99", "--json"])
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: no experiment 'slice-E99'")


def test_bench_without_a_name_lists_the_benchmarks() -> None:
    shown = CliRunner().invoke(app, ["bench"])
    assert shown.exit_code == 0
    assert all(f" {name} " in shown.stdout for name in NAMES)


def test_help_lists_the_lab_commands() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert all(f" {command} " in shown.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("arguments", [(), ("--help",), ("run", "--all")], ids=" ".join)
def test_without_the_lab_an_error_line_names_the_package_to_install(
    command: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "GROUP", "slicemill.commands.of.nobody")
    shown = CliRunner().invoke(app, [command, *arguments])
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert len(shown.stderr.splitlines()) == 1
    assert "pip install slicemill-lab" in shown.stderr


def test_the_product_does_not_import_the_lab() -> None:
    for file in Path(slicemill.__file__).parent.rglob("*.py"):
        assert not {"slicemill_lab", "matplotlib"} & set(_imported(file)), file


def _imported(file: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    plain = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    return [
        name.split(".")[0]
        for name in plain + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    ]
