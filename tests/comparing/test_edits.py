"""Reasons name what was edited: a piece that became another, counted over all equal places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.comparing.attribution import explain
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.graphs import edit_reasons
from pytest_modelperf.profiler.records import Case, CaseProfile
from tests.support.small_models import parse, static_of

HARD = "Add Clip Mul Div"


def chain(text: str) -> CaseProfile:
    """A model of the operators of `text`, each of which reads the one before it.

    In a piece in parentheses, `Mul` also reads what the piece reads.
    """
    words = text.replace("(", "( ").replace(")", " )").split()
    lines: list[str] = []
    last = start = "x"
    for word in words:
        if word in {"(", ")"}:
            start = last
            continue
        second = {"Add": ", c", "Div": ", c", "Mul": f", {start}", "Conv": ", w"}.get(word, "")
        name = f"t{len(lines)}"
        lines.append(f"[{word}_{len(lines)}] {name} = {word}({last}{second})")
        last = name
    source = f"""
        g (float[1,4,4,4] x) => (float[1,4,4,4] {last}) <float[1] c = {{3}}> {{
            {chr(10).join(lines)}
        }}
    """
    model = parse(source, weights={"w": np.ones((4, 4, 1, 1), np.float32)})
    return CaseProfile(Case(1, 1), static_of(model), None)


def reasons(before: str, after: str) -> Sequence[str]:
    return explain(chain(before), chain(after)).reasons


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "Conv HardSwish Conv HardSwish Conv HardSwish",
            f"Conv ({HARD}) Conv ({HARD}) Conv ({HARD})",
            ["3 HardSwish became Add, Clip, Mul and Div (first: Add_1)"],
        ),
        (
            f"Conv ({HARD}) Conv ({HARD})",
            "Conv HardSwish Conv HardSwish",
            ["Add, Clip, Mul and Div became HardSwish in 2 places (first: HardSwish_1)"],
        ),
        (
            "Conv Relu Conv Relu Conv Relu",
            "Conv Elu Conv Relu Conv Elu",
            ["2 Relu became Elu (first: Elu_1)"],
        ),
        ("Conv Conv", "Conv Abs Neg Conv", ["Abs and Neg added (first: Abs_1)"]),
        (
            "Conv Abs Neg Conv Abs Neg Conv",
            "Conv Conv Conv",
            ["Abs and Neg removed in 2 places (first: Abs_1)"],
        ),
        ("Conv Exp Exp Conv", "Conv Abs Conv", ["2 Exp became Abs (first: Abs_1)"]),
    ],
)
def test_equal_edits_are_one_reason(before: str, after: str, expected: Sequence[str]) -> None:
    assert list(reasons(before, after)) == expected


def test_layers_outside_all_edits_are_counted_by_operator() -> None:
    assert reasons("Conv Relu Conv Relu Conv", "Conv Elu Conv Conv") == (
        "1 Relu became Elu (first: Elu_1)",
        "1 other Relu removed (first: Relu_3)",
    )


def test_layers_at_two_places_do_not_count_as_an_edit() -> None:
    """The one is gone from before the first convolution, the other new behind the last one."""
    assert set(reasons("Relu Conv Exp Conv", "Conv Exp Conv Elu")) == {
        "1 Relu removed, none left (first: Relu_0)",
        "1 Elu added (first: Elu_3)",
    }


def test_a_model_that_is_mostly_another_is_counted_by_operator() -> None:
    many = " ".join(["Exp Abs"] * 12)
    assert set(reasons("Conv Relu Conv", f"Conv {many} Conv")) == {
        "1 Relu removed, none left (first: Relu_1)",
        "12 Exp added (first: Exp_1)",
        "12 Abs added (first: Abs_2)",
    }


def test_without_known_edges_operators_are_counted() -> None:
    before, after = chain("Conv Relu Conv"), chain("Conv Elu Conv")
    assert after.counted is not None
    unknown = tuple(replace(layer, fed_by=None) for layer in after.counted.layers)
    found = explain(before, replace(after, counted=replace(after.counted, layers=unknown)))
    assert set(found.reasons) == {
        "1 Relu removed, none left (first: Relu_1)",
        "1 Elu added (first: Elu_1)",
    }


OPERATORS = st.lists(
    st.sampled_from(["Conv", "Relu", "Elu", "Abs", "Neg", "Exp"]), min_size=1, max_size=9
)


@given(OPERATORS, OPERATORS)
def test_each_new_or_lost_layer_is_in_one_reason(old: Sequence[str], new: Sequence[str]) -> None:
    sides = chain(" ".join(old)), chain(" ".join(new))
    found = Differences.between(*sides)
    made = edit_reasons(found)
    macs = [0 if side.counted is None else side.counted.macs or 0 for side in sides]
    assert sum(reason.added_macs for reason in made) == macs[1] - macs[0]
    assert bool(made) == (len(found.pairs) < max(len(old), len(new)))
