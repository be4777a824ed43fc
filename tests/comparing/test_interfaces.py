"""Inputs and outputs that were added, and weights that layers share, are reasons."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.graphs import interface_reasons, sharing_reasons
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.request import ProfileRequest
from tests.support.small_models import parse


def model(text: str, **weights: np.ndarray) -> Model:
    return Model.load(parse(text, weights=weights), ProfileRequest(), Extensions())


def graph(inputs: str, outputs: str) -> Graph:
    text = f"g ({inputs}) => ({outputs}) {{ y = Relu (x) z = Neg (x) w = Abs (y) }}"
    return model(text).bound.graph


X, Y = "float[1,4] x", "float[1,4] y"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((X, Y), (X, f"{Y}, float[1,4] z"), ["1 output added (first: z)"]),
        ((X, Y), (X, f"{Y}, float[1,4] z, float[1,4] w"), ["2 outputs added (first: z)"]),
        ((X, f"{Y}, float[1,4] z"), (X, Y), ["1 output removed (first: z)"]),
        ((X, Y), (f"{X}, float[1] k", Y), ["1 input added (first: k)"]),
        ((X, Y), (X, "float[1,4] w"), []),
        ((X, Y), (X, Y), []),
    ],
)
def test_inputs_and_outputs_of_models_are_compared(
    before: tuple[str, str], after: tuple[str, str], said: list[str]
) -> None:
    found = interface_reasons(graph(*before), graph(*after))
    assert [reason.in_words() for reason in found] == said


def two_products(first: str, second: str) -> CaseProfile:
    weights = {name: np.ones((64, 64), np.float32) for name in {first, second}}
    products = f"h = MatMul (x, {first}) y = MatMul (h, {second})"
    text = f"g (float[2,64] x) => (float[2,64] y) {{ {products} }}"
    return CaseProfile(Case(2, 1), model(text, **weights).static)


def test_weights_that_stopped_being_shared_are_a_reason() -> None:
    shared, apart = two_products("a", "a"), two_products("a", "b")
    (reason,) = sharing_reasons(Differences.between(shared, apart))
    assert reason.text == (
        "weights that layers shared are stored for each of them now: 16.00 KiB -> 32.00 KiB"
    )
    (reason,) = sharing_reasons(Differences.between(apart, shared))
    assert reason.text.startswith("weights that were stored for each layer are shared now: ")
    assert not sharing_reasons(Differences.between(apart, two_products("b", "c")))


def test_layers_that_became_larger_do_not_share_less() -> None:
    small, large = (
        CaseProfile(
            Case(2, 1),
            model(
                f"g (float[2,64] x) => (float[2,{size}] y) {{ y = MatMul (x, a) }}",
                a=np.ones((64, size), np.float32),
            ).static,
        )
        for size in (64, 128)
    )
    assert not sharing_reasons(Differences.between(small, large))
