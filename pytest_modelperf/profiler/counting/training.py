"""The cost of losses and optimizer steps, as the operators' definitions write them.

An optimizer's scalars, such as the corrected learning rate, are made once a call.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.per_element import elements, elementwise


def count_negative_log_likelihood(node: Node) -> Cost:
    """For each target its log-probability, negated, weighted by its class, and gathered."""
    return elementwise(_likelihoods(node))


def count_softmax_cross_entropy(node: Node) -> Cost:
    """A log-softmax over the classes, then the negative log-likelihood of the labels."""
    log_softmax = node.input(0).size * ACTIVATION_OPS["LogSoftmax"] + node.input(1).size * LOG
    return elementwise(log_softmax + _likelihoods(node))


def count_adam(node: Node) -> Cost:
    """X - rate * V / (sqrt(H) + e), with V and H running means of the gradient and its square.

    V' = a * V + (1 - a) * G and H' = b * H + (1 - b) * G * G; once a call the rate is made:
    R * sqrt(1 - b^T) / (1 - a^T) where T > 0.
    """
    per_element = (
        _regularization(node)
        + (2 * MUL + ADD)
        + (3 * MUL + ADD)
        + (SQRT + ADD)
        + (MUL + DIV + ADD)
        + (MUL if node.attr_float("norm_coefficient_post", 0.0) else 0)
    )
    once = CMP + 2 * (POW + ADD) + SQRT + MUL + DIV
    return elementwise(_optimized(node, tensors_each=4) * per_element + once)


def count_adagrad(node: Node) -> Cost:
    """X - rate * G / (sqrt(H) + e), with H' = H + G * G; once: R / (1 + T * decay)."""
    per_element = _regularization(node) + (MUL + ADD) + (SQRT + ADD) + (MUL + DIV + ADD)
    return elementwise(_optimized(node, tensors_each=3) * per_element + MUL + ADD + DIV)


def count_momentum(node: Node) -> Cost:
    """X - R * V with V' = a * V + b * G; Nesterov's goes along G + a * V instead; once: T > 0."""
    ahead = MUL + ADD if node.attr_str("mode", "standard") == "nesterov" else 0
    per_element = _regularization(node) + (2 * MUL + ADD) + ahead + (MUL + ADD)
    return elementwise(_optimized(node, tensors_each=3) * per_element + CMP)


def _likelihoods(node: Node) -> int:
    targets = node.input(1).size
    weighted = node.optional_input(2) is not None
    per_target = MOV + ADD + (MOV + MUL if weighted else 0)
    if "ignore_index" in node.attributes:
        per_target += CMP
    reduction = node.attr_str("reduction", "mean")
    if reduction == "none":
        return targets * per_target
    averaged = reduction == "mean"
    # A weighted mean is divided by the sum of the weights that were used.
    gathered = 2 * ADD if weighted and averaged else ADD
    return targets * (per_target + gathered) + (DIV if averaged else 0)


def _regularization(node: Node) -> int:
    """norm_coefficient * X + G."""
    return MUL + ADD if node.attr_float("norm_coefficient", 0.0) else 0


def _optimized(node: Node, *, tensors_each: int) -> int:
    """Elements of all optimized tensors, which come first after the rate and the step."""
    count = (len(node.inputs) - 2) // tensors_each
    return elements(node.inputs[2 : 2 + count])


COUNTERS: Mapping[str, Counter] = {
    "NegativeLogLikelihoodLoss": count_negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": count_softmax_cross_entropy,
    "ai.onnx.preview.training::Adagrad": count_adagrad,
    "ai.onnx.preview.training::Adam": count_adam,
    "ai.onnx.preview.training::Momentum": count_momentum,
}

UNTELLABLE: Mapping[str, str] = {
    "ai.onnx.preview.training::Gradient": (
        "what it runs is the backward pass of other nodes, which only an engine builds"
    ),
}
