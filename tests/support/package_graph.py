"""The package graph of the house: which room imports which, found by reading the sources.

    python tests/support/package_graph.py                  # the graph as text
    python tests/support/package_graph.py --modules        # and which imports an arrow stands for
    python tests/support/package_graph.py --svg docs/pictures/house.svg

A room is a package or module at the top of `slicemill`.
Every import counts: at the top of a module, inside a function, and for type checkers.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "slicemill": ROOT / "src" / "slicemill",
    "slicemill_oracle": ROOT / "oracle" / "src" / "slicemill_oracle",
    "slicemill_lab": ROOT / "lab" / "src" / "slicemill_lab",
    "slicemill_client": ROOT / "client" / "src" / "slicemill_client",
}

Arrow = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Import:
    """One import of one module; `at_load` says whether it is done when the importing module is loaded."""

    module: str
    target: str
    line: int
    at_load: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


@cache
def modules() -> Mapping[str, Path]:
    """The files of all modules of ours, by dotted name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Every import of every module: modules of ours by their full names, others by what is written."""
    return tuple(one for name, path in modules().items() for one in _imports_of(name, path))


def _imports_of(module: str, path: Path) -> Iterator[Import]:
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), True)]
    while pending:
        node, at_load = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, at_load)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}:{node.lineno}: imports are absolute"
            for target in {_target(node.module, alias.name) for alias in node.names}:
                yield Import(module, target, node.lineno, at_load)
        lazy = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        pending += [(child, at_load and not lazy) for child in ast.iter_child_nodes(node)]


def _target(package: str, name: str) -> str:
    return f"{package}.{name}" if f"{package}.{name}" in modules() else package


def room_of(module: str) -> str:
    """The room of a module of the product: `slicemill.operators.join.spec` is in `operators`."""
    _, _, inside = module.partition(".")
    return inside.split(".")[0] or "slicemill"


@cache
def arrows() -> Mapping[Arrow, tuple[Import, ...]]:
    """Which rooms of the product import which, with the imports that are the reason."""
    found: defaultdict[Arrow, list[Import]] = defaultdict(list)
    for one in imports():
        if one.module.split(".")[0] == one.target.split(".")[0] == "slicemill":
            arrow = room_of(one.module), room_of(one.target)
            if arrow[0] != arrow[1]:
                found[arrow].append(one)
    return {arrow: tuple(found[arrow]) for arrow in sorted(found)}


def cycles(graph: Iterable[Arrow]) -> list[frozenset[str]]:
    """Sets of rooms that all reach each other.

    >>> cycles([("a", "b"), ("b", "c"), ("c", "b")]) == [frozenset("bc")]
    True
    """
    reach = reachable(graph)
    sets = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}
    return sorted(sets, key=sorted)


def reachable(graph: Iterable[Arrow]) -> dict[str, set[str]]:
    """What can be reached from each room, by one arrow or more."""
    reach: defaultdict[str, set[str]] = defaultdict(set)
    for source, target in graph:
        reach[source].add(target)
    changed = True
    while changed:
        changed = False
        for found in reach.values():
            more = set().union(*(reach[room] for room in found if room in reach)) - found
            found |= more
            changed = changed or bool(more)
    return dict(reach)


def loaded_with(module: str) -> set[str]:
    """All modules, ours and others, whose import begins when a module of ours is loaded."""
    loads = _loads()
    pending, found = [module], set[str]()
    while pending:
        current = pending.pop()
        if current not in found:
            found.add(current)
            pending += loads.get(current, ())
    return found


@cache
def _loads() -> Mapping[str, set[str]]:
    loads: defaultdict[str, set[str]] = defaultdict(set)
    for one in imports():
        if one.at_load:
            loads[one.module].add(one.target)
    for name in list(modules()):
        loads[name].add(name.rpartition(".")[0] or name)  # a package's __init__ is loaded before its modules
    return loads


def without_detours(graph: Iterable[Arrow]) -> list[Arrow]:
    """The arrows that no longer way stands for: the transitive reduction of a graph without cycles.

    >>> without_detours([("a", "b"), ("b", "c"), ("a", "c")])
    [('a', 'b'), ('b', 'c')]
    """
    graph = list(graph)
    reach = reachable(graph)
    beyond: defaultdict[str, set[str]] = defaultdict(set)
    for source, target in graph:
        beyond[source] |= reach.get(target, set())
    return sorted((source, target) for source, target in graph if target not in beyond[source])


def as_text(with_modules: bool = False) -> str:
    """A line for each room: what it imports, with the number of imports; then cycles, if there are any."""
    lines: list[str] = []
    for room in sorted({room for arrow in arrows() for room in arrow}):
        targets = [(target, found) for (source, target), found in arrows().items() if source == room]
        lines.append(f"{room} → {' '.join(f'{target}:{len(found)}' for target, found in targets) or '—'}")
        if with_modules:
            lines += [f"    {one}" for _, found in targets for one in found]
    lines += [f"cycle: {', '.join(sorted(cycle))}" for cycle in cycles(arrows())]
    return "\n".join(lines)


def as_svg(graph: Iterable[Arrow]) -> str:
    """The graph as a drawing, without the arrows that longer ways stand for."""
    # The product's own layout and shapes: imported here, so that the rules above need none of the product.
    from slicemill.explain.layout import Box, lay_out
    from slicemill.explain.svg import ARC, INK, PAPER, SANS, curve, n, text_width, xml

    margin, size, height = 16.0, 13.0, 28.0
    drawn = without_detours(graph)
    rooms = sorted({room for arrow in drawn for room in arrow})
    layout = lay_out([Box(room, text_width(room, size) + 20.0, height) for room in rooms], drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {n(layout.width + 2 * margin)} '
        f'{n(layout.height + 2 * margin)}" width="{n(layout.width + 2 * margin)}" role="img">',
        "<title>The rooms of slicemill: an arrow goes from a room to one that it imports</title>",
        f"<style>text{{font:{n(size)}px {SANS};fill:{INK}}}path{{fill:none;stroke:{ARC}}}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.2" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0.6L8 4L0 7.4Z" style="fill:{ARC};stroke:none"/></marker></defs>',
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        f'<g transform="translate({n(margin)} {n(margin)})">',
    ]
    parts += [f'<path d="{curve(route)}" marker-end="url(#tip)"/>' for route in layout.routes]
    for room, place in layout.boxes.items():
        parts.append(
            f'<rect x="{n(place.x)}" y="{n(place.y)}" width="{n(place.width)}" height="{n(place.height)}" '
            f'rx="5" fill="{PAPER}" stroke="{INK}"/>'
            f'<text x="{n(place.x + 10)}" y="{n(place.middle + size / 3)}">{xml(room)}</text>'
        )
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The package graph of the house.")
    parser.add_argument("--modules", action="store_true", help="also the imports behind each arrow")
    parser.add_argument("--svg", type=Path, help="write the drawing there")
    options = parser.parse_args()
    print(as_text(options.modules))
    if options.svg:
        options.svg.write_text(as_svg(arrows()))


if __name__ == "__main__":
    main()
