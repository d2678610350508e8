"""One state per stream or a tree of joins: the model's figures, and what is planned by them."""

from __future__ import annotations

import re

import pytest

from operators.multijoin.running import by_rows, catalog_of
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.explain.text import explain_text
from slicemill.operators.join.form import (
    JoinedStreams,
    forms_of,
    one_state_each,
    shared_state_share,
    tree_of_joins,
)
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.plan.planner import Planner
from slicemill.plan.rules.multi_joins import multi_joins

EVERY = frozenset({0, 1, 2})


def planned(text: str) -> list[SharedJoin]:
    catalog = catalog_of({"q": text})
    graph = multi_joins(by_rows(catalog), catalog)
    return [node.operator for node in graph if isinstance(node.operator, SharedJoin)]


def test_what_is_kept_is_the_windows_and_in_a_tree_joined_tuples_too() -> None:
    streams = JoinedStreams((10, 10, 10), (60, 60, 60), keys=((EVERY, 0.1),))
    assert one_state_each(streams).memory == 3 * 600
    # 10 tuples a second of each of two streams meet 60 of the other: 1 200 pairs, kept for a minute.
    assert tree_of_joins(streams, (0, 1, 2)).memory == 3 * 600 + 2 * 1200 * 60


def test_looking_again_for_what_two_streams_have_in_common_is_what_one_state_each_costs() -> None:
    streams = JoinedStreams((10, 10, 10), (60, 60, 60), keys=((EVERY, 0.1),))
    # Every tuple looks for its key, meets 60, and each of these looks for it again and meets 60.
    assert one_state_each(streams).probe == 3 * 10 * ((8 + 60) + 60 * (8 + 60))
    # Two streams, 20 tuples a second; then 1 200 joined ones and 10 that look for them, of 72 000 one in ten.
    assert tree_of_joins(streams, (0, 1, 2)).probe == pytest.approx(
        20 * (8 + 60) + 1200 * (8 + 60) + 10 * (8 + 72_000 * 0.1)
    )


@pytest.mark.parametrize(
    ("rates", "keys", "tree"),
    [
        ((100, 100, 100), ((frozenset({0, 1}), 0.01), (frozenset({1, 2}), 0.01)), False),
        # Of two streams hardly any tuples meet; many of a third meet many of one of them, all in vain.
        ((10, 1000, 1000), ((frozenset({0, 1}), 1e-6), (frozenset({1, 2}), 0.1)), True),
    ],
)
def test_a_tree_pays_where_few_meet_and_many_look_for_them(
    rates: tuple[float, ...], keys: tuple[tuple[frozenset[int], float], ...], tree: bool
) -> None:
    assert forms_of(JoinedStreams(rates, (60, 60, 60), keys), (0, 1, 2)).use_tree is tree


@pytest.mark.parametrize(
    ("where", "multi"),
    [
        ("A.k = B.k AND B.k = C.k", True),
        ("A.k = B.k AND B.v = C.v", True),
        ("A.v < B.v AND B.v < C.v", True),
        # C meets all that is joined of A and B, which is less than A and B.
        ("A.k = B.k AND A.t = B.t", False),
    ],
)
def test_the_planner_goes_by_the_model(where: str, multi: bool) -> None:
    text = f"SELECT A.v FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND], C [RANGE 1 SECOND] WHERE {where}"
    assert [bool(join.members[0].why) for join in planned(text)] == [True] * multi


def test_windows_that_count_rows_stay_as_they_are() -> None:
    text = "SELECT A.v FROM A [ROWS 3], B [RANGE 1 SECOND], C [RANGE 1 SECOND] WHERE A.k = B.k AND B.k = C.k"
    assert not planned(text)


@pytest.mark.parametrize(
    ("where", "title"),
    [("A.k = B.k AND B.k = C.k", "From states"), ("A.k = B.k AND A.t = B.t", "In order")],
)
def test_explain_says_which_form_it_is_and_what_both_cost(where: str, title: str) -> None:
    text = f"SELECT A.v FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND], C [RANGE 1 SECOND] WHERE {where}"
    explained = explain_text(Planner().plan(catalog_of({"q": text})).graph)
    assert title in explained
    words = " ".join(explained.replace("│", " ").split())
    told = re.search(
        r"one state per stream keeps ([\d,]+) tuples and makes ([\d,]+) comparisons/s, "
        r"a tree of joins ([\d,]+) and ([\d,]+)",
        words,
    )
    assert told is not None, words
    multi_kept, multi, tree_kept, tree = (int(figure.replace(",", "")) for figure in told.groups())
    assert (tree_kept * tree * 1.1 < multi_kept * multi) is (title == "In order")


def test_what_is_saved_by_sharing_is_what_others_keep_anyway() -> None:
    def member(*named: tuple[str, int]) -> JoinMember:
        windows = tuple(Window(FrameUnit.RANGE, seconds * 1_000_000) for _, seconds in named)
        return JoinMember("q", windows, (None,) * len(named), None, (), inputs=tuple(n for n, _ in named))

    there = [member(("a", 10), ("b", 10), ("c", 10))]
    assert shared_state_share([member(("a", 10), ("b", 10), ("d", 10))], there) == pytest.approx(2 / 3)
    assert shared_state_share([member(("a", 60), ("b", 60))], there) == pytest.approx(1 / 6)
    assert shared_state_share([member(("a", 5), ("b", 1))], there) == 1.0
