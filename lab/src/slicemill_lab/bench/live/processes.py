"""Child processes of benchmarks, with communication by lines."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from slicemill.errors import SlicemillError

_GOING_S = 20.0
_LAST_WORDS = 2_000


class Program:
    """Running program. Its standard output is read line by line; its errors are stored in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        working: Path | None = None,
    ) -> None:
        """Start the program in the folder `working`. Errors are stored in `folder`."""
        self.name = name
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=working,
                env={**os.environ, **(environment or {})},
                # In its own session, so that Ctrl-C does not reach it, and `stop` can kill its whole process
                # group.
                start_new_session=True,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self, within_s: float) -> str:
        """Return the next line of output. Raises an error with the last errors if there is none in time."""
        try:
            found = self._lines.get(timeout=within_s)
        except queue.Empty:
            raise SlicemillError(
                f"{self.name} said nothing for {within_s:g} s: {self.last_words()}"
            ) from None
        if found is None:
            raise SlicemillError(f"{self.name} has ended: {self.last_words()}")
        return found

    def line_or_none(self, within_s: float) -> str | None:
        """Return the next line of output, or None after the timeout."""
        try:
            return self._lines.get(timeout=within_s)
        except queue.Empty:
            return None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def check(self) -> None:
        """Raise an error with the program's last output if it has ended."""
        if self.ended:
            raise SlicemillError(f"{self.name} has ended: {self.last_words()}")

    def last_words(self) -> str:
        return self._errors.read_text(errors="replace")[-_LAST_WORDS:].strip() or "without a word"

    def stop(self, interrupt: bool = False) -> None:
        """Close the program's input or interrupt it, and kill it after a timeout."""
        assert self._process.stdin is not None
        if self._process.poll() is None and interrupt:
            self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOING_S)
        # Kill the process group as well, with all remaining children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
