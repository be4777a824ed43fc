"""Losses and optimizer steps."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, EXP, LOG, MOV, MUL, POW, SQRT
from tests.graph.operators.nodes import node, ops

DOMAIN = "ai.onnx.preview.training::"
R, T = (), ()


@pytest.mark.parametrize(
    ("reduction", "gathered"), [("none", 0), ("sum", 10 * ADD), ("mean", 10 * ADD + DIV)]
)
def test_a_likelihood_is_looked_up_for_each_target(reduction: str, gathered: int) -> None:
    inputs = [(2, 100, 5), (2, 5)]
    call = node("NegativeLogLikelihoodLoss", inputs, [()], reduction=reduction)
    assert ops(call) == 10 * (MOV + ADD) + gathered


def test_a_weighted_mean_also_sums_its_weights() -> None:
    inputs = [(10, 100), (10,), (100,)]
    call = node("NegativeLogLikelihoodLoss", inputs, [()], ignore_index=0)
    assert ops(call) == 10 * (MOV + ADD + MOV + MUL + CMP) + 10 * 2 * ADD + DIV


def test_cross_entropy_is_a_log_softmax_and_a_likelihood() -> None:
    inputs = [(10, 100), (10,)]
    likelihood = ops(node("NegativeLogLikelihoodLoss", inputs, [()]))
    call = node("SoftmaxCrossEntropyLoss", inputs, [()])
    assert ops(call) == 1000 * (CMP + ADD + EXP + ADD + ADD) + 10 * LOG + likelihood


def test_adam_by_hand() -> None:
    x, y = (3, 4), (5,)
    inputs = [R, T, x, y, x, y, x, y, x, y]
    once = CMP + 2 * POW + 2 * ADD + SQRT + MUL + DIV
    v, h, step = 2 * MUL + ADD, 3 * MUL + ADD, SQRT + ADD + MUL + DIV + ADD
    assert ops(node(DOMAIN + "Adam", inputs, [])) == 17 * (v + h + step) + once
    regular = node(DOMAIN + "Adam", inputs, [], norm_coefficient=0.1, norm_coefficient_post=0.1)
    assert ops(regular) == 17 * (v + h + step + MUL + ADD + MUL) + once


def test_adagrad_by_hand() -> None:
    call = node(DOMAIN + "Adagrad", [R, T, (3, 4), (3, 4), (3, 4)], [])
    assert ops(call) == 12 * (MUL + ADD + SQRT + ADD + MUL + DIV + ADD) + MUL + ADD + DIV


def test_nesterov_looks_one_step_ahead() -> None:
    inputs = [R, T, (3, 4), (3, 4), (3, 4)]
    standard = ops(node(DOMAIN + "Momentum", inputs, [], mode="standard"))
    nesterov = ops(node(DOMAIN + "Momentum", inputs, [], mode="nesterov"))
    assert standard == 12 * (2 * MUL + ADD + MUL + ADD) + CMP
    assert nesterov == standard + 12 * (MUL + ADD)
