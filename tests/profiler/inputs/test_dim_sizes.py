"""Which combinations of sizes of dimensions are cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.inputs.dim_sizes import combine_sizes, varying_names
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.spec.case_definitions import DIMS
from pytest_modelperf.spec.kinds import read_typed
from pytest_modelperf.spec.readers import read_dims

PAIRED = [{"seq": 64, "past": 0}, {"seq": 1, "past": 128}]


def test_sizes_that_go_together_are_two_cases_and_not_four() -> None:
    typed = read_typed(DIMS, ("seq=64,past=0", "past=128,seq=1"), "--dim")
    for sizes in (read_dims(PAIRED, "dims"), typed):
        assert list(combine_sizes(sizes)) == PAIRED
        assert [each.dims for each in ProfileRequest(dims=sizes).bindings()] == PAIRED


def test_other_sizes_are_combined() -> None:
    sizes = read_typed(DIMS, ("seq=64,1", "past=0,128"), "--dim")
    assert len(list(combine_sizes(sizes))) == 4
    assert list(combine_sizes({})) == [{}]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, unique=True))
def test_the_cases_that_were_asked_for_are_those_there_are(cases: list[tuple[int, int]]) -> None:
    tables = [{"a": a, "b": b} for a, b in cases]
    assert list(combine_sizes(read_dims(tables, "dims"))) == tables


def test_a_size_that_all_cases_share_is_not_in_their_ids() -> None:
    sizes = read_dims([{"seq": 64, "past": 0}, {"seq": 64, "past": 128}], "dims")
    assert varying_names(sizes) == ("past",)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"seq": 64}, {"past": 1}], "each table of the list takes the same dimensions"),
        ([{}], "each table of the list takes the same dimensions"),
        ([{"seq": 64}, {"seq": 64}], "dims has two tables with the same sizes"),
        ([{"seq": [1, 2]}], "dims: seq takes whole numbers of 0 or more, not a list"),
        ([{"seq": 64}, 3], "dims takes a table such as"),
        ({0: 64}, "dims takes names that are texts, not 0"),
        ([{0: 64}], "dims takes names that are texts, not 0"),
    ],
)
def test_tables_that_name_no_cases_are_refused(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_dims(value, "dims")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["seq=64,past=0", "seq=1"], "takes all names once"),
        (["seq=64,past=0", "seq=1,2"], "cannot be read"),
        (["seq=64,seq=1"], "takes all names once"),
        (["seq=64,past=0", "past=0,seq=64"], "--dim has two tables with the same sizes"),
    ],
)
def test_texts_that_name_no_cases_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_typed(DIMS, texts, "--dim")
