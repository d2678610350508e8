"""Listing of a source's files: a folder, a single file, or a glob pattern.

Names that begin with `_` or `.` or end with `._COPYING_` belong to incomplete files and are ignored.
Subfolders are not entered. The modification time of a folder shows whether names were added or removed. So a
poll of an unchanged folder takes one system call, regardless of the number of files.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from slicemill.errors import SlicemillError

GLOB = re.compile(r"[*?\[\]{}\\]")

# Age of a folder's modification below which the folder may change again within the same clock tick.
_SETTLED_NS = 100_000_000
# Interval of listing a folder without a visible change, because some file systems do not update its time.
_LIST_AGAIN_S = 5.0
_SHARE_OF_TIME = 50


class ListedFile(NamedTuple):
    """File with its modification time; files are sorted by (time, name)."""

    mtime_ns: int
    name: str


@dataclass(slots=True)
class Listing:
    """Files of a source at a path; file names are relative to `root`."""

    root: Path
    pattern: tuple[str, ...]  # components of the path or pattern below the root
    name_filter: re.Pattern[str] | None = None
    _known: dict[str, int] = field(default_factory=dict)
    _listed_s: float = float("-inf")
    _cost_s: float = 0.0
    _empty: list[str] = field(default_factory=list)

    def new(self, seen: Collection[str]) -> list[ListedFile]:
        """Return the files that were not seen before, in order.

        Empty files are omitted until they have content.
        """
        if not self._changed():
            return self._filled(seen)
        began_s, began_ns = time.monotonic(), time.time_ns()
        self._known = {}
        found: list[ListedFile] = []
        self._empty = []
        for name in self._names():
            if name in seen or not self._is_wanted(name.rpartition("/")[2]):
                continue
            self._add(name, found)
        self._known = {
            folder: mtime if began_ns - mtime > _SETTLED_NS else -1 for folder, mtime in self._known.items()
        }
        self._listed_s = time.monotonic()
        self._cost_s = self._listed_s - began_s
        return sorted(found)

    def names(self) -> list[str]:
        """Return the names of all files, including empty files."""
        return [name for name in self._names() if self._is_wanted(name.rpartition("/")[2])]

    @property
    def cost_s(self) -> float:
        """Return the duration of the last listing in seconds."""
        return self._cost_s

    def exists(self) -> bool:
        """Return True if the path exists, or is a pattern that may match later files."""
        return bool(self.pattern) or self.root.exists()

    def some(self, count: int) -> list[Path]:
        """Return at most `count` files, in any order."""
        names = (name for name in self._names() if self._is_wanted(name.rpartition("/")[2]))
        return [self.root / name for name in islice(names, count)]

    def has_partitions(self) -> bool:
        """Return True for a folder with partition folders, such as day=7."""
        if self.pattern or not self.root.is_dir():
            return False
        with os.scandir(self.root) as entries:
            return any("=" in entry.name and entry.is_dir() for entry in entries)

    def _add(self, name: str, found: list[ListedFile]) -> None:
        try:
            status = (self.root / name).stat()
        except OSError:
            return  # the file or folder was removed meanwhile
        if status.st_size:
            found.append(ListedFile(status.st_mtime_ns, name))
        else:
            self._empty.append(name)

    def _filled(self, seen: Collection[str]) -> list[ListedFile]:
        """Return the files that were empty and have content now."""
        waiting, self._empty = self._empty, []
        found: list[ListedFile] = []
        for name in waiting:
            if name not in seen:
                self._add(name, found)
        return sorted(found)

    def _changed(self) -> bool:
        if time.monotonic() - self._listed_s > max(_LIST_AGAIN_S, _SHARE_OF_TIME * self._cost_s):
            return True
        return any(_mtime_ns(folder) != mtime for folder, mtime in self._known.items())

    def _is_wanted(self, name: str) -> bool:
        hidden = (name.startswith("_") and "=" not in name) or name.startswith(".")
        if hidden or name.endswith("._COPYING_"):
            return False
        return self.name_filter is None or self.name_filter.fullmatch(name) is not None

    def _names(self) -> Iterator[str]:
        if self.root.is_file():
            yield ""
            return
        yield from self._matching("", self.pattern)

    def _matching(self, prefix: str, pattern: tuple[str, ...]) -> Iterator[str]:
        """Yield the files below a folder that match the rest of a pattern.

        If a folder matches the whole pattern, its files are yielded.
        """
        folder = self.root / prefix
        self._known[str(folder)] = _mtime_ns(str(folder))
        matches: Callable[[str], bool] | None = glob_regex(pattern[0]).fullmatch if pattern else None  # type: ignore[assignment]
        try:
            entries = os.scandir(folder)
        except OSError:
            return
        with entries:
            for entry in entries:
                if matches is not None and not matches(entry.name):
                    continue
                if len(pattern) <= 1 and entry.is_file():
                    yield prefix + entry.name
                elif pattern and entry.is_dir():
                    yield from self._matching(f"{prefix}{entry.name}/", pattern[1:])


def _mtime_ns(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return -1


def listing_of(path: Path, name_filter: str | None = None) -> Listing:
    """Return the listing of a file, a folder or a glob pattern."""
    accepted = None if name_filter is None else glob_regex(name_filter)
    if path.exists() or not GLOB.search(str(path)):
        return Listing(path, (), accepted)
    parts = path.parts
    first = next(number for number, part in enumerate(parts) if GLOB.search(part))
    return Listing(Path(*parts[:first]), parts[first:], accepted)


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob pattern as in Hadoop.

    Supported are `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, and `\\` as escape character.

    >>> bool(glob_regex("bid-[0-9]*.{csv,tsv}").fullmatch("bid-7.tsv"))
    True
    """
    out: list[str] = []
    at = depth = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        elif character == "*":
            out.append(".*")
        elif character == "?":
            out.append(".")
        elif character == "[" and "]" in pattern[at + 1 :]:
            end = pattern.index("]", at + 1)
            inside = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[^{inside[1:]}]" if inside[0] in "^!" else f"[{inside}]")
            at = end + 1
        elif character == "{":
            depth += 1
            out.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            out.append(")")
        elif character == "," and depth:
            out.append("|")
        else:
            out.append(re.escape(character))
    return re.compile("".join(out) + ")" * depth, re.DOTALL)


# Options of file sources


LISTING = frozenset({"path", "pathglobfilter", "maxfilespertrigger"})
LINES_ONLY = frozenset({"follow"})
CSV_ONLY = frozenset({"header", "sep", "delimiter", "quote", "escape", "comment", "nullvalue"})
# Spark options without effect, because rows are always checked, and are read as soon as possible.
WITHOUT_EFFECT = frozenset(
    {"inferschema", "mergeschema", "multiline", "mode", "maxbytespertrigger", "enforceschema"}
)
# Options that only Spark supports. A source with such an option is read through Spark.
BY_SPARK = frozenset(
    {
        "allowbackslashescapinganycharacter",
        "allowcomments",
        "allownonnumericnumbers",
        "allownumericleadingzeros",
        "allowsinglequotes",
        "allowunquotedcontrolchars",
        "allowunquotedfieldnames",
        "charset",
        "chartoescapequoteescaping",
        "cleansource",
        "columnnameofcorruptrecord",
        "compression",
        "dateformat",
        "datetimerebasemode",
        "emptyvalue",
        "encoding",
        "filenameonly",
        "ignorecorruptfiles",
        "ignoreleadingwhitespace",
        "ignoremissingfiles",
        "ignoretrailingwhitespace",
        "int96rebasemode",
        "latestfirst",
        "linesep",
        "locale",
        "maxcharspercolumn",
        "maxcolumns",
        "maxfileage",
        "modifiedafter",
        "modifiedbefore",
        "nanvalue",
        "negativeinf",
        "positiveinf",
        "recursivefilelookup",
        "samplingratio",
        "sourcearchivedir",
        "timestampformat",
        "timestampntzformat",
        "timezone",
        "unescapedquotehandling",
        "wholetext",
    }
)


def check_options(form: str, options: Mapping[str, str]) -> bool:
    """Return True if the native readers support all options of a file source.

    Return False if an option needs Spark. Raise if an option is unknown.
    """
    known = LISTING | WITHOUT_EFFECT | (CSV_ONLY if form == "csv" else frozenset())
    known |= LINES_ONLY if form != "parquet" else frozenset()
    given = {name.lower(): name for name in options}
    for lowered, name in given.items():
        if lowered not in known | BY_SPARK | CSV_ONLY:
            close = difflib.get_close_matches(lowered, known | BY_SPARK, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}"
            raise SlicemillError(f"{form} files have no option {name}{hint}")
    return not BY_SPARK & given.keys()


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Return the value of a boolean option, whose default is False."""
    text = {key.lower(): value for key, value in options.items()}.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise SlicemillError(f"the option {name} is true or false, not {text!r}")
    return text == "true"
