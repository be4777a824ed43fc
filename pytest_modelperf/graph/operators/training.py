"""Losses, dropouts and optimizer steps, as in the definitions of the operators.

Scalars of an optimizer, such as the corrected learning rate, are computed once per call.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, LOG, MOV, MUL, POW, SQRT, Cost
from pytest_modelperf.graph.operators.operator import (
    ACTIVATION_OPS,
    UNIFORM,
    ZERO,
    Operator,
    bias_ops,
    elements,
    elementwise,
    rows_of,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    OutputType,
    dtype_of,
    has_input,
    product,
    shape_of,
)
from pytest_modelperf.graph.structure import Node


def count_dropout(node: Node, *, training_mode: int = 2) -> Cost:
    """Count a random number, a comparison, and x * mask * scale in training, or nothing."""
    return elementwise(_dropout(node, training_mode))


def count_bias_dropout(node: Node) -> Cost:
    """Count dropout(data + bias) + residual."""
    size = node.input(0).size
    return elementwise(size * ADD + bias_ops(node, 2, size) + _dropout(node, 4))


def _dropout(node: Node, training_mode: int) -> int:
    mode = node.optional_input(training_mode)
    if mode is None or mode.value is None or not mode.value.all():
        return 0
    return node.input(0).size * (UNIFORM + CMP + 2 * MUL)


def count_negative_log_likelihood(node: Node) -> Cost:
    """Count a log-probability for each target: negated, weighted by its class, and gathered."""
    return elementwise(_likelihoods(node))


def count_softmax_cross_entropy(node: Node) -> Cost:
    """Count a log-softmax over the classes, and the negative log-likelihood of the labels."""
    log_softmax = node.input(0).size * ACTIVATION_OPS["LogSoftmax"] + node.input(1).size * LOG
    return elementwise(log_softmax + _likelihoods(node))


def count_adam(node: Node) -> Cost:
    """Count X - rate * V / (sqrt(H) + e), with V and H means of the gradient and its square."""
    # The means are running: V' = a * V + (1 - a) * G and H' = b * H + (1 - b) * G * G. The rate is
    # computed once per call: R * sqrt(1 - b^T) / (1 - a^T) if T > 0.
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
    """Count X - rate * G / (sqrt(H) + e), with H' = H + G * G, and once R / (1 + T * decay)."""
    per_element = _regularization(node) + (MUL + ADD) + (SQRT + ADD) + (MUL + DIV + ADD)
    return elementwise(_optimized(node, tensors_each=3) * per_element + MUL + ADD + DIV)


def count_momentum(node: Node) -> Cost:
    """Count X - R * V with V' = a * V + b * G (Nesterov: G + a * V), and once T > 0."""
    ahead = MUL + ADD if node.attr_str("mode", "standard") == "nesterov" else 0
    per_element = _regularization(node) + (2 * MUL + ADD) + ahead + (MUL + ADD)
    return elementwise(_optimized(node, tensors_each=3) * per_element + CMP)


def _likelihoods(node: Node) -> int:
    targets = node.input(1).size
    weighted = has_input(node, 2)
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
    return MUL + ADD if node.attr_float("norm_coefficient", 0.0) else 0


def _optimized(node: Node, *, tensors_each: int) -> int:
    count = (len(node.inputs) - 2) // tensors_each
    return elements(node.inputs[2 : 2 + count])


def shape_dropped(node: Node) -> Outputs:
    shape = shape_of(node, 0)
    return OutputType(dtype_of(node, 0), shape), OutputType("bool", shape)


def shape_dropped_by_bits(node: Node) -> Outputs:
    """Return the output and a mask with a bit for each element, in words of 32."""
    shape = shape_of(node, 0)
    size = None if shape is None else product(*shape)
    words = None if size is None else (size + 31) // 32
    return OutputType(dtype_of(node, 0), shape), OutputType("uint32", (words,))


OPERATORS: Mapping[str, Operator] = {
    "Dropout": Operator(count_dropout, demands={1: ZERO, 2: ZERO}),
    "NegativeLogLikelihoodLoss": Operator(
        count_negative_log_likelihood, demands={1: rows_of(0, 1)},
    ),
    "SoftmaxCrossEntropyLoss": Operator(count_softmax_cross_entropy, demands={1: rows_of(0, 1)}),
    "ai.onnx.preview.training::Adagrad": Operator(count_adagrad),
    "ai.onnx.preview.training::Adam": Operator(count_adam),
    "ai.onnx.preview.training::Gradient": Operator(
        uncounted="what it runs is the backward pass of other nodes, which only an engine builds",
    ),
    "ai.onnx.preview.training::Momentum": Operator(count_momentum),
    "com.microsoft::BiasDropout": Operator(count_bias_dropout, shape_dropped),
    "com.microsoft::BitmaskBiasDropout": Operator(count_bias_dropout, shape_dropped_by_bits),
    "com.microsoft::BitmaskDropout": Operator(count_dropout, shape_dropped_by_bits),
}  # fmt: skip
