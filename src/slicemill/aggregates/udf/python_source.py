"""Digest of the source code of an aggregate in Python, by which changes are detected.

The digest covers the class and everything in the same file that the class uses: functions, other classes,
constants. It does not cover comments, blanks, docstrings and imported modules. The source file is read
without being imported.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

_DIGITS = 10


def source_digest(external: str) -> str | None:
    """Return the digest of the class `module:class`, or None if its source file is not available."""
    module, _, name = external.partition(":")
    file = _file_of(module)
    if file is None:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    defined = {name: node for node in tree.body for name in _names_of(node)}
    used: dict[str, str] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        node = defined.get(name)
        if node is not None and name not in used:
            used[name] = ast.dump(_without_docstrings(node))
            waiting += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    text = "\n".join(f"{name}: {used[name]}" for name in sorted(used))
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest() if used else None


def _file_of(module: str) -> Path | None:
    loaded = sys.modules.get(module)
    found = getattr(loaded, "__file__", None)
    if found is None and loaded is None:
        try:
            spec = find_spec(module)
        except (ImportError, ValueError):
            return None
        found = None if spec is None else spec.origin
    return None if found is None or not str(found).endswith(".py") else Path(found)


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement at the top level of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = (inner for target in targets if target is not None for inner in ast.walk(target))
    return [inner.id for inner in names if isinstance(inner, ast.Name)]


def _without_docstrings(node: ast.AST) -> ast.AST:
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and isinstance(
            body, list
        ):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return node
