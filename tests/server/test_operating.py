"""Files for administrators: the Grafana dashboard and the systemd unit."""

from __future__ import annotations

import json
import re
import shlex
from configparser import RawConfigParser
from pathlib import Path

import httpx
import typer.main

from slicemill.cli import app

ROOT = Path(__file__).parents[2]


def test_every_metric_of_the_dashboard_exists(client: httpx.Client) -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "slicemill.json").read_text())
    wanted = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    wanted += [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    figures = {name for text in wanted for name in re.findall(r"slicemill_\w+", text)}
    declared = re.findall(r"^# TYPE (\w+) (\w+)$", client.get("/metrics").text, re.MULTILINE)
    assert figures <= {name for name, _ in declared}
    for name, kind in declared:
        assert (kind == "counter") == name.endswith("_total"), name
        if name in figures and kind == "counter":
            uses = [text for text in wanted if name in text and "label_values" not in text]
            assert all(f"rate({name}" in text for text in uses), "what only grows is shown as a rate"
    left_out = {name for name, _ in declared} - figures
    assert left_out == set(), "the dashboard shows all of them"


def test_the_systemd_unit_starts_the_server_with_existing_options() -> None:
    task = RawConfigParser(strict=False)
    task.optionxform = str  # type: ignore[assignment, method-assign]
    task.read(ROOT / "deploy" / "slicemill.service")
    assert task["Service"]["Type"] == "notify"
    assert task["Service"]["KillMode"] == "mixed", "workers are needed until the checkpoint is written"
    program, command, *arguments = shlex.split(task["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("slicemill", "serve")
    known = {
        option
        for parameter in typer.main.get_command(app).commands["serve"].params
        for option in parameter.opts  # type: ignore[attr-defined]
    }
    assert {argument for argument in arguments if argument.startswith("--")} <= known
