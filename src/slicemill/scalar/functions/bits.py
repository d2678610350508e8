"""Bit operations on integers."""

from __future__ import annotations

import operator

import numpy as np

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.function import SAME, RowFunction, ScalarFunction, Types, as_common, plain
from slicemill.scalar.functions.arithmetic import in_64_bits
from slicemill.scalar.kernel import KernelCall, KernelMaker, Strict, kernel
from slicemill.scalar.source import Snippet, SnippetMaker, SourceMaker, kinds_of
from slicemill.scalar.values import wrapped
from slicemill.scalar.vectors import Numbers


def _bits_source(sign: str) -> SourceMaker:
    def make(types: Types, _result: Type, _machine: bool) -> SnippetMaker | None:
        if not kinds_of(types) <= {Kind.INT, Kind.BIGINT}:
            return None
        return lambda a, b: Snippet(f"({a} {sign} {b})")

    return make


def _width(type_: Type) -> int:
    return 32 if type_.kind is Kind.INT else 64


def _shift_operands(_types: Types, result: Type) -> Types:
    return (result, t.INT)


def _shift_left_row(_types: Types, result: Type) -> RowFunction:
    bits = _width(result)
    return lambda value, by: wrapped(value << (by % bits), bits)


def _shift_right_row(_types: Types, result: Type) -> RowFunction:
    bits = _width(result)
    return lambda value, by: value >> (by % bits)


def _shift_column(function: Strict) -> KernelMaker:
    def make(call: KernelCall) -> Strict:
        mask = _width(call.result) - 1
        return lambda number, by: function(number, (by & mask).astype(number.dtype))

    return make


def _bit_count_row(value: int) -> int:
    return (value & 0xFFFF_FFFF_FFFF_FFFF).bit_count()


def _bit_count_column(number: Numbers) -> Numbers:
    return np.bitwise_count(in_64_bits(number).view(np.uint64)).astype(np.int32)


BITS: dict[str, ScalarFunction] = {
    "&": ScalarFunction(
        row=plain(operator.and_),
        takes=as_common,
        column=kernel(np.bitwise_and),
        source=_bits_source("&"),
        duckdb=SAME,
    ),
    "|": ScalarFunction(
        row=plain(operator.or_),
        takes=as_common,
        column=kernel(np.bitwise_or),
        source=_bits_source("|"),
        duckdb=SAME,
    ),
    "^": ScalarFunction(
        row=plain(operator.xor),
        takes=as_common,
        column=kernel(np.bitwise_xor),
        source=_bits_source("^"),
        duckdb="xor({0}, {1})",
    ),
    "~": ScalarFunction(row=plain(operator.invert), column=kernel(np.invert), duckdb=SAME),
    "shiftleft": ScalarFunction(
        row=_shift_left_row, takes=_shift_operands, column=_shift_column(np.left_shift)
    ),
    "shiftright": ScalarFunction(
        row=_shift_right_row,
        takes=_shift_operands,
        column=_shift_column(np.right_shift),
        duckdb=lambda call: f"({{0}} >> ({{1}} & {_width(call.type) - 1}))",
    ),
    "bit_count": ScalarFunction(
        row=plain(_bit_count_row),
        column=kernel(_bit_count_column),
        duckdb="bit_count(CAST({0} AS BIGINT))",
    ),
}
