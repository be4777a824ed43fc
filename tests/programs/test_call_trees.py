"""The calls of both sides as one tree: times are kept, and functions are matched by place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.comparing.changes import CallChange, StageTime
from pytest_modelperf.programs.causes import merged_calls
from pytest_modelperf.programs.messages import CallNode, CallProfile

NAMES = st.sampled_from(["a.py:load", "a.py:Reader.read", "method 'run'", "b.py:<lambda>"])
CALLS = st.integers(1, 50)
NS = st.sampled_from([1, 30, 100_000, 2_000_000, 7_000_000])


def _node(place: str, calls: int, own_ns: int, inner: Sequence[CallNode] = ()) -> CallNode:
    ns = own_ns + sum(each.ns for each in inner)
    return CallNode(place=place, ns=ns, calls=calls, inner=tuple(inner))


TREES = st.recursive(
    st.builds(_node, NAMES, CALLS, NS),
    lambda inner: st.builds(_node, NAMES, CALLS, NS, st.lists(inner, max_size=5)),
    max_leaves=12,
)


def _profiles(*roots: CallNode | None) -> list[CallProfile]:
    return [CallProfile(functions=(), root=root) for root in roots]


def _below(calls: Sequence[CallChange]) -> Iterator[tuple[CallChange, list[CallChange]]]:
    """Each function with those that it calls."""
    for at, call in enumerate(calls):
        inner = []
        for each in calls[at + 1 :]:
            if each.level <= call.level:
                break
            if each.level == call.level + 1:
                inner.append(each)
        yield call, inner


def _times(call: CallChange) -> tuple[float, float]:
    return tuple(0.0 if each is None else each.ns for each in (call.before, call.after))  # type: ignore[return-value]  # two


def _lines(calls: Sequence[CallChange]) -> list[str]:
    def text(time: StageTime | None) -> str:
        return "-" if time is None else f"{time.calls:g}x{time.ns / 1e6:g}"

    return [f"{'  ' * c.level}{c.place} {text(c.before)} {text(c.after)}" for c in calls]


@given(TREES, TREES)
def test_callees_of_a_function_keep_the_time_of_each_side(
    before: CallNode, after: CallNode
) -> None:
    calls = merged_calls(_profiles(before), _profiles(after))
    assert _times(calls[0]) == (before.ns, after.ns)
    if before.place == after.place:
        (_, inner), *_ = _below(calls)
        for side, root in enumerate((before, after)):
            assert sum(_times(each)[side] for each in inner) == sum(n.ns for n in root.inner)
    for call, inner in _below(calls):
        for whole, parts in zip(_times(call), zip(*map(_times, inner), strict=True), strict=False):
            assert sum(parts) <= whole


@given(TREES, TREES)
def test_functions_are_once_below_their_caller_the_longest_first(
    before: CallNode, after: CallNode
) -> None:
    calls = merged_calls(_profiles(before), _profiles(after))
    assert [call.level for call in calls].count(0) == 1
    for _, inner in _below(calls):
        places = [each.place for each in inner]
        assert len(set(places)) == len(places)
        longest = [max(_times(each)) for each in inner if not each.place.endswith(" others")]
        assert longest == sorted(longest, reverse=True)


@given(TREES, TREES)
def test_two_small_functions_are_never_shown_below_one_caller(
    before: CallNode, after: CallNode
) -> None:
    calls = merged_calls(_profiles(before), _profiles(after))
    for _, inner in _below(calls):
        shares = [(old / before.ns, new / after.ns) for old, new in map(_times, inner)]
        small = [each for each, share in zip(inner, shares, strict=True) if max(share) < 0.005]
        assert len([each for each in small if not each.place.endswith(" others")]) <= 1


@given(TREES, TREES)
def test_swapped_sides_are_the_same_tree_with_its_times_swapped(
    before: CallNode, after: CallNode
) -> None:
    one = merged_calls(_profiles(before), _profiles(after))
    other = merged_calls(_profiles(after), _profiles(before))
    assert [(c.place, c.level, c.before, c.after) for c in one] == [
        (c.place, c.level, c.after, c.before) for c in other
    ]


@given(TREES)
def test_profiles_that_agree_are_like_one(root: CallNode) -> None:
    assert merged_calls(_profiles(root, root), _profiles(root)) == merged_calls(
        _profiles(root), _profiles(root)
    )


def test_a_function_that_one_side_has_alone_has_no_time_on_the_other() -> None:
    before = _node("r:read", 1, 1_000_000, [_node("r:old", 2, 500_000)])
    after = _node("r:read", 1, 1_000_000, [_node("r:new", 1, 4_000_000, [_node("len", 9, 10)])])
    assert _lines(merged_calls(_profiles(before), _profiles(after))) == [
        "r:read 1x1.5 1x5.00001",
        "  r:new - 1x4.00001",
        "    len - 9x1e-05",
        "  r:old 2x0.5 -",
    ]


def test_small_functions_are_one_entry_with_their_number() -> None:
    small = [_node(f"small{at}", 1, 1000 * (at + 1)) for at in range(3)]
    root = _node("r:read", 1, 9_000_000, [*small, _node("r:large", 1, 800_000)])
    grown = _node("r:read", 1, 9_000_000, [_node("small0", 2, 900_000), small[1]])
    assert _lines(merged_calls(_profiles(root), _profiles(grown))) == [
        "r:read 1x9.806 1x9.902",
        "  small0 1x0.001 2x0.9",
        "  r:large 1x0.8 -",
        "  2 others 2x0.005 1x0.002",
    ]


def test_roots_at_other_places_are_both_below_the_call() -> None:
    before, after = _node("r:read", 1, 1_000_000), _node("r:read_all", 1, 2_000_000)
    assert _lines(merged_calls(_profiles(before), _profiles(after))) == [
        "call 1x1 1x2",
        "  r:read_all - 1x2",
        "  r:read 1x1 -",
    ]


@pytest.mark.parametrize("profiles", [[], _profiles(None)], ids=["no profile", "no time"])
def test_without_time_there_is_no_tree(profiles: list[CallProfile]) -> None:
    assert merged_calls(profiles, profiles) == ()
