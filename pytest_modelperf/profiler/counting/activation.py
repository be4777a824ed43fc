"""The cost of one element of an activation function, by its name in any ONNX domain.

Each weight is the sum of the weights of the formula beside it, evaluated as written in the
operator's definition: constants are free, a comparison or a selection is a CMP, a negation or a
subtraction is an ADD. Where the formula has branches, both are counted, as vectorised kernels
evaluate both.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, EXP, LOG, MUL, TANH

SIGMOID = ADD + EXP + ADD + DIV  # 1 / (1 + exp(-x))
SOFTPLUS = EXP + ADD + LOG  # log(exp(x) + 1)

# sign(x) * (1 - t * poly4(t) * exp(-x^2)) with t = 1 / (1 + p|x|):
# Abramowitz and Stegun, Handbook of Mathematical Functions, formula 7.1.26.
ERF = (CMP + MUL + ADD + DIV) + (5 * MUL + 4 * ADD) + (MUL + ADD + EXP) + (MUL + ADD) + CMP

# max, x - max, exp, sum, quotient: the maximum is subtracted, or exp overflows.
SOFTMAX = CMP + ADD + EXP + ADD + DIV

ACTIVATION_OPS: Mapping[str, int] = {
    "Affine": MUL + ADD,  # a * x + b
    "Celu": 2 * CMP + DIV + EXP + ADD + MUL + ADD,  # max(0, x) + min(0, a * (exp(x / a) - 1))
    "Clip": 2 * CMP,  # min(max(x, low), high)
    "Elu": CMP + EXP + ADD + MUL,  # x if x > 0 else a * (exp(x) - 1)
    "Erf": ERF,
    "FastGelu": 3 * MUL + ADD + MUL + TANH + ADD + 2 * MUL,  # x / 2 * (1 + tanh(c(x + dx^3)))
    "GeGLU": 3 * MUL + ADD + MUL + TANH + ADD + 3 * MUL,  # fastgelu(g) * l; for each pair (g, l)
    "Gelu": DIV + ERF + ADD + 2 * MUL,  # 0.5 * x * (1 + erf(x / sqrt(2)))
    "HardSigmoid": MUL + ADD + 2 * CMP,  # max(0, min(1, a * x + b))
    "HardSwish": MUL + ADD + 2 * CMP + MUL,  # x * hardsigmoid(x)
    "Identity": 0,
    "LeakyRelu": CMP + MUL,  # x if x >= 0 else a * x
    "LogSoftmax": CMP + ADD + EXP + ADD + ADD,  # x - max - log(sum(exp(x - max))), one log a row
    "Mish": SOFTPLUS + TANH + MUL,  # x * tanh(softplus(x))
    "None": 0,
    "PRelu": CMP + MUL,  # x if x >= 0 else slope * x
    "QuickGelu": MUL + SIGMOID + MUL,  # x * sigmoid(a * x)
    "Relu": CMP,  # max(0, x)
    "Relu2": CMP + MUL,  # the square of relu(x)
    "ScaledTanh": MUL + TANH + MUL,  # a * tanh(b * x)
    "Selu": CMP + EXP + MUL + ADD + MUL,  # g * (x if x > 0 else a * exp(x) - a)
    "Shrink": 2 * CMP + ADD,  # x + b below -l, x - b above l, else 0
    "Sigmoid": SIGMOID,
    "Silu": SIGMOID + MUL,  # x * sigmoid(x)
    "Softmax": SOFTMAX,
    "Softplus": SOFTPLUS,
    "Softsign": CMP + ADD + DIV,  # x / (1 + |x|)
    "SwiGLU": 3 * CMP + MUL + SIGMOID + ADD + 2 * MUL,
    # g * sigmoid(a * g) * (l + b), g clamped above, l on both sides; for each pair (g, l)
    "Swish": MUL + SIGMOID + MUL,  # x * sigmoid(a * x)
    "Tanh": TANH,
    "ThresholdedRelu": CMP,  # x if x > a else 0
}


def activation_ops(name: str) -> int:
    """Operations an element; 0 for no name, CMP for a name that nobody has defined.

    ONNX writes names in any case: `relu` of a mixture of experts is `Relu` of an LSTM.
    An unheard-of activation must not hide the MACs of the operator that it is fused into.
    """
    return _OPS_BY_LOWER_NAME.get(name.lower(), CMP) if name else 0


_OPS_BY_LOWER_NAME: Mapping[str, int] = {name.lower(): n for name, n in ACTIVATION_OPS.items()}
