"""Options of file sources: native, Spark's, and unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from slicemill.errors import SlicemillError

LISTING = frozenset({"path", "pathglobfilter", "maxfilespertrigger"})
LINES_ONLY = frozenset({"follow"})
CSV_ONLY = frozenset({"header", "sep", "delimiter", "quote", "escape", "comment", "nullvalue"})
# Options without effect: rows are checked against the declaration, and read as soon as they exist.
WITHOUT_EFFECT = frozenset(
    {"inferschema", "mergeschema", "multiline", "mode", "maxbytespertrigger", "enforceschema"}
)
# Options for which Spark reads other files, or parses them differently.
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
    """Return True if no option needs Spark; raise for an unknown option."""
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
    """Return the value of a boolean option, False by default."""
    text = {key.lower(): value for key, value in options.items()}.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise SlicemillError(f"the option {name} is true or false, not {text!r}")
    return text == "true"
