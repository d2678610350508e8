"""Completion in the shell: keywords, and names of the server's catalog."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from slicemill_client import ClientError, Connection

KEYWORDS = (
    *("CREATE STREAM", "CREATE QUERY", "CREATE TABLE", "CREATE VIEW", "CREATE AGGREGATE", "CREATE MODEL"),
    *(
        "CREATE FUNCTION",
        "DROP QUERY",
        "DROP STREAM",
        "DROP TABLE",
        "DROP VIEW",
        "PAUSE QUERY",
        "RESUME QUERY",
    ),
    *("ALTER QUERY", "ALTER STREAM", "RESTART QUERY", "PAUSE STREAM", "RESUME STREAM"),
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON"),
    *(
        "OVER",
        "PARTITION BY",
        "RANGE",
        "ROWS",
        "PRECEDING",
        "SLIDE",
        "UNION",
        "WITH",
        "AS",
        "AND",
        "OR",
        "NOT",
    ),
    *(
        "IN",
        "LIKE",
        "BETWEEN",
        "IS NULL",
        "SLACK",
        "SKEW",
        "RETAIN",
        "FROM BEGINNING",
        "SOURCE",
        "SET policy",
        "REPLAY",
    ),
    *("SHOW STREAMS", "SHOW QUERIES", "SHOW TABLES", "SHOW VIEWS", "SHOW AGGREGATES", "SHOW MODELS"),
    *("SHOW FUNCTIONS", "SHOW SETTINGS", "SHOW STATEMENTS", "SHOW CREATE", "DESCRIBE", "EXPLAIN"),
)
_WORD = re.compile(r"[\w\\]+$")
_ASKED_EVERY_S = 5.0


class ServerNames:
    """Names of the server's relations and columns, cached for some seconds."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._names: list[str] = []
        self._asked_s = float("-inf")

    def __call__(self) -> list[str]:
        if self._clock() - self._asked_s > _ASKED_EVERY_S:
            self._asked_s = self._clock()
            try:
                declared = self._connection.request("GET", "/v1/catalog").json()
                known = self._connection.request("GET", "/v1/words").json()["relations"]
                columns = [column["name"] for relation in known for column in relation["columns"]]
                self._names = [*(entry["name"] for entry in declared), *columns]
            except ClientError:
                self._names = []
        return self._names


class WordCompleter(Completer):
    """Completes the word before the cursor: keywords, catalog names, shell commands."""

    def __init__(self, names: Callable[[], Iterable[str]], commands: Iterable[str] = ()) -> None:
        self._names = names
        self._commands = tuple(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        found = _WORD.search(document.text_before_cursor)
        if found is None:
            return
        word = found[0]
        if word.startswith("\\"):
            candidates: Iterable[str] = self._commands
        else:
            candidates = (*self._names(), *KEYWORDS)
        for candidate in dict.fromkeys(candidates):
            if candidate.lower().startswith(word.lower()) and candidate.lower() != word.lower():
                yield Completion(candidate, start_position=-len(word))
