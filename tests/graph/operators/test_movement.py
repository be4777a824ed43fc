"""Moves cost what lands in the output; views and bookkeeping cost nothing."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.graph.operators.cost import ADD, CMP, COS, DIV, EXP, LOG, MOV, MUL, POW, SQRT
from pytest_modelperf.graph.structure import Shape, Tensor
from tests.graph.operators.nodes import node, ops, unknown

UNIFORM = 2 * (MUL + ADD)


@pytest.mark.parametrize(
    ("op", "inputs", "output"),
    [
        ("Concat", [(2, 3), (4, 3)], (6, 3)),
        ("DepthToSpace", [(1, 8, 2, 3)], (1, 2, 4, 6)),
        ("Expand", [(3, 1), (2,)], (3, 9)),
        ("Gather", [(30522, 768), (1, 128)], (1, 128, 768)),
        ("GatherElements", [(9, 9), (2, 3)], (2, 3)),
        ("Pad", [(2, 2), (4,)], (4, 4)),
        ("ScatterND", [(100, 4), (3, 1), (3, 4)], (100, 4)),
        ("Slice", [(100,), (1,), (1,)], (7,)),
        ("TensorScatter", [(2, 9, 4), (2, 1, 4)], (2, 9, 4)),
        ("Tile", [(2, 2), (2,)], (6, 4)),
        ("Transpose", [(2, 3, 4)], (4, 3, 2)),
        ("com.microsoft.nchwc::ReorderInput", [(1, 3, 8, 8)], (1, 8, 8, 8)),
    ],
)
def test_a_move_for_each_element_that_lands(op: str, inputs: list[Shape], output: Shape) -> None:
    landed = 1
    for dim in output:
        assert dim is not None
        landed *= dim
    assert ops(node(op, inputs, [output])) == landed * MOV


def test_a_split_moves_to_all_of_its_outputs() -> None:
    assert ops(node("Split", [(10, 3)], [(4, 3), None, (6, 3)])) == 30 * MOV


def test_a_scatter_that_reduces_costs_an_operation_more_an_update() -> None:
    inputs, output = [(9, 9), (2, 3), (2, 3)], [(9, 9)]
    assert ops(node("ScatterElements", inputs, output)) == 81 * MOV
    assert ops(node("ScatterElements", inputs, output, reduction="none")) == 81 * MOV
    assert ops(node("ScatterElements", inputs, output, reduction="max")) == 81 * MOV + 6 * CMP


@pytest.mark.parametrize(
    "op", ["Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"]
)
def test_views_are_free_even_of_unknown_shape(op: str) -> None:
    assert ops(node(op, [unknown()], [unknown()])) == 0


def test_confirmed_wrong_14_sequences_are_bookkeeping_until_they_are_copied() -> None:
    for op in ("SequenceAt", "SequenceConstruct", "SequenceInsert", "SequenceLength"):
        assert ops(node(op, [unknown(), unknown()], [unknown()])) == 0
    assert ops(node("SplitToSequence", [(6, 2)], [unknown()])) == 12 * MOV
    assert ops(node("ConcatFromSequence", [unknown()], [(6, 2)])) == 12 * MOV


def flag(*, value: bool | None) -> Tensor:
    array = None if value is None else np.array(value)
    return Tensor("training", "bool", (), is_constant=value is not None, value=array)


def test_dropout_costs_something_in_training_only() -> None:
    x = (3, 4)
    assert ops(node("Dropout", [x], [x])) == 0
    assert ops(node("Dropout", [x, (), flag(value=False)], [x])) == 0
    assert ops(node("Dropout", [x, (), flag(value=None)], [x])) == 0
    training = 12 * (UNIFORM + CMP + 2 * MUL)
    assert ops(node("Dropout", [x, (), flag(value=True)], [x])) == training
    biased = "com.microsoft::BiasDropout"
    assert ops(node(biased, [x, (4,), None, (), flag(value=True)], [x])) == 12 * ADD + training
    assert ops(node(biased, [x, (4,), x], [x])) == 24 * ADD


def test_fills_and_ranges() -> None:
    assert ops(node("ConstantOfShape", [(2,)], [(3, 4)])) == 12 * MOV
    for op in ("Range", "com.microsoft::Range"):
        assert ops(node(op, [(), (), ()], [(10,)])) == 10 * (MUL + ADD)
    assert ops(node("Constant", [], [(3, 4)])) == 0


def test_random_numbers() -> None:
    uniform = ops(node("RandomUniform", [], [(5,)]))
    normal = ops(node("RandomNormal", [], [(5,)]))
    assert uniform == 5 * UNIFORM
    assert normal == 5 * (2 * UNIFORM + LOG + SQRT + COS + 4 * MUL + ADD)
    assert ops(node("Bernoulli", [(5,)], [(5,)])) == uniform + 5 * CMP


def test_samples_are_searched_among_the_classes() -> None:
    call = node("Multinomial", [(2, 8)], [(2, 100)])
    assert ops(call) == 16 * (CMP + ADD + EXP + ADD) + 200 * (UNIFORM + 3 * CMP)


def test_windows_are_cosines() -> None:
    hann = ops(node("HannWindow", [()], [(400,)]))
    assert hann == ops(node("HammingWindow", [()], [(400,)])) == 400 * (2 * MUL + COS + ADD)
    assert ops(node("BlackmanWindow", [()], [(400,)])) == 2 * hann


def test_a_mel_matrix_is_mostly_zeros() -> None:
    edge, slope = DIV + POW + ADD + MUL + MUL + DIV, ADD + DIV
    call = node("MelWeightMatrix", [()] * 5, [(257, 80)])
    assert ops(call) == 257 * 80 * MOV + 82 * edge + 2 * 257 * slope
