"""Shapes and colours of a drawn model, by class of core (C19)."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.explain.layout import Rectangle
from slicemill.explain.svg_shapes import n
from slicemill.model.classify import CoreKind
from slicemill.model.graphs.graph import ModelNode, Op, Storage

BADGE = 11.0  # radius of the circle with an operator's letter
TIP = 9.0
LID = 5.0


@dataclass(frozen=True, slots=True)
class Ink:
    fill: str
    edge: str
    meaning: str


PLAIN = Ink("#f4f6f8", "#6b7783", "serves all cores")
INKS = {
    CoreKind.INCREMENTAL: Ink("#dcf3ea", "#00795c", "incremental"),
    CoreKind.SHIFT_INCREMENTAL: Ink("#dcecf8", "#0072b2", "incremental, shifted"),
    CoreKind.TWO_STACK: Ink("#dcecf8", "#0072b2", "two stacks"),
    CoreKind.AUX_MEMORY: Ink("#fdf0d0", "#8a6100", "needs extra memory"),
    CoreKind.BLOCKING: Ink("#fbe3dc", "#b93a00", "blocking"),
}


def ink_of(kind: CoreKind | None) -> Ink:
    return PLAIN if kind is None else INKS[kind]


def outline(node: ModelNode, kind: CoreKind | None, r: Rectangle) -> str:
    """Draw the box of a node.

    S is an arrow and W a cylinder. Other operators have the shape of their class.
    """
    ink = ink_of(kind)
    style = f'fill="{ink.fill}" stroke="{ink.edge}" stroke-width="1.5"'
    if node.op is Op.S:
        shoulder = n(r.right - TIP)
        path = f"M{n(r.x)} {n(r.y)}H{shoulder}L{n(r.right)} {n(r.middle)}L{shoulder} {n(r.bottom)}H{n(r.x)}Z"
        return f'<path d="{path}" stroke-linejoin="round" {style}/>'
    if node.op is Op.W:
        return _cylinder(r, ink, Storage(node.params.get("storage", Storage.WORKING)))
    return shape(kind, r)


def shape(kind: CoreKind | None, r: Rectangle) -> str:
    """Draw the shape of a class.

    Incremental: rounded. Shifted and two stacks: pointed. Extra memory: cut corners. Blocking: double frame.
    """
    ink = ink_of(kind)
    style = f'fill="{ink.fill}" stroke="{ink.edge}" stroke-width="1.5"'
    x, y, right, bottom = n(r.x), n(r.y), n(r.right), n(r.bottom)
    if kind in (CoreKind.SHIFT_INCREMENTAL, CoreKind.TWO_STACK):
        points = f"M{n(r.x + TIP)} {y}H{n(r.right - TIP)}L{right} {n(r.middle)}L{n(r.right - TIP)} {bottom}"
        return f'<path d="{points}H{n(r.x + TIP)}L{x} {n(r.middle)}Z" stroke-linejoin="round" {style}/>'
    if kind is CoreKind.AUX_MEMORY:
        cut = TIP - 2
        path = f"M{n(r.x + cut)} {y}H{n(r.right - cut)}L{right} {n(r.y + cut)}V{n(r.bottom - cut)}"
        path += f"L{n(r.right - cut)} {bottom}H{n(r.x + cut)}L{x} {n(r.bottom - cut)}V{n(r.y + cut)}Z"
        return f'<path d="{path}" {style}/>'
    if kind is CoreKind.BLOCKING:
        inner = f'x="{n(r.x + 3)}" y="{n(r.y + 3)}" width="{n(r.width - 6)}" height="{n(r.height - 6)}"'
        outer = f'x="{x}" y="{y}" width="{n(r.width)}" height="{n(r.height)}"'
        return f'<rect {outer} {style}/><rect {inner} fill="none" stroke="{ink.edge}" stroke-width="1"/>'
    radius = n(min(r.height / 2, 17.0))
    return f'<rect x="{x}" y="{y}" width="{n(r.width)}" height="{n(r.height)}" rx="{radius}" {style}/>'


def _cylinder(r: Rectangle, ink: Ink, storage: Storage) -> str:
    """Draw a cylinder; dashed border for intermediate storage, double for permanent."""
    dash = ' stroke-dasharray="4 3"' if storage is Storage.INTERMEDIATE else ""
    arc = f"{n(r.width / 2)} {n(LID)} 0 0"
    top, bottom = n(r.y + LID), n(r.bottom - LID)
    body = f"M{n(r.x)} {top}A{arc} 1 {n(r.right)} {top}V{bottom}A{arc} 1 {n(r.x)} {bottom}Z"
    lid = f"M{n(r.x)} {top}A{arc} 0 {n(r.right)} {top}"
    stroke = f'stroke="{ink.edge}" stroke-width="1.5"{dash}'
    drawn = f'<path d="{body}" fill="{ink.fill}" {stroke}/><path d="{lid}" fill="none" {stroke}/>'
    if storage is Storage.PERMANENT:
        inner = Rectangle(r.x + 3, r.y + 3, r.width - 6, r.height - 6)
        drawn += _cylinder(inner, ink, Storage.WORKING)
    return drawn


def badge(letter: str, x: float, y: float, colour: str) -> str:
    """Draw the letter of an operator in a circle."""
    return (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(BADGE)}" fill="{colour}"/>'
        f'<text class="letter" x="{n(x)}" y="{n(y + 4.2)}" text-anchor="middle">{letter}</text>'
    )
