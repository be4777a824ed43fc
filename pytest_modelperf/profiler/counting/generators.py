"""The cost of new values: fills, ranges, windows, filter banks, random numbers.

A uniform random number is one step of a linear congruential generator, state * a + c, brought
into its range; a normal one is made from two of them, and a choice among classes from one
(Box and Muller, A Note on the Generation of Random Normal Deviates, 1958).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.per_element import elementwise, free, per_output_element
from pytest_modelperf.profiler.counting.reduction import ceil_log2

UNIFORM = 2 * (MUL + ADD)
NORMAL = 2 * UNIFORM + (LOG + MUL + SQRT) + (MUL + COS) + MUL  # sqrt(-2 log u) * cos(2 pi v)
COSINE_TERM = MUL + COS + MUL + ADD  # + a * cos(b * i)


def count_multinomial(node: Node) -> Cost:
    """Cumulated probabilities of each row of logits, then a binary search for every sample."""
    samples = node.output().size
    classes = node.input(0).dims[-1]
    distribution = node.input(0).size * (CMP + ADD + EXP + ADD)
    return elementwise(distribution + samples * (UNIFORM + ceil_log2(classes) * CMP))


def count_mel_weight_matrix(node: Node) -> Cost:
    """Triangles in a matrix [frequencies, mel bins] of zeros.

    The edges are two more than the bins: 700 * (10^(mel / 2595) - 1) Hz, then a frequency's
    index. No frequency is in more than two triangles, each a difference and a quotient.
    """
    frequencies, bins = node.output().dims
    edges = (bins + 2) * (DIV + POW + ADD + MUL + MUL + DIV)
    return elementwise(frequencies * bins * MOV + edges + 2 * frequencies * (ADD + DIV))


COUNTERS: Mapping[str, Counter] = {
    "Bernoulli": per_output_element(UNIFORM + CMP),
    "BlackmanWindow": per_output_element(2 * COSINE_TERM),
    "Constant": free,
    "ConstantOfShape": per_output_element(MOV),
    "EyeLike": per_output_element(MOV),
    "HammingWindow": per_output_element(COSINE_TERM),
    "HannWindow": per_output_element(COSINE_TERM),
    "MelWeightMatrix": count_mel_weight_matrix,
    "Multinomial": count_multinomial,
    "RandomNormal": per_output_element(NORMAL + MUL + ADD),
    "RandomNormalLike": per_output_element(NORMAL + MUL + ADD),
    "RandomUniform": per_output_element(UNIFORM),
    "RandomUniformLike": per_output_element(UNIFORM),
    "Range": per_output_element(MUL + ADD),  # start + i * delta
    "com.microsoft::Range": per_output_element(MUL + ADD),
}
