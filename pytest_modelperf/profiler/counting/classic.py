"""The cost of classic machine learning: trees, support vectors, linear models, and encoders.

Weights are attributes here. A linear model's scores and a kernel's dot products or squared
distances are contractions of the input with them. Every step of a row down a tree fetches a
feature and compares it; rows are counted to the deepest leaf of each tree. A look-up of a key is
one MOV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import SIGMOID, SOFTMAX
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    TANH,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.per_element import (
    elementwise,
    per_input_element,
    per_output_element,
)
from pytest_modelperf.profiler.counting.reduction import norm_ops

# sqrt(2) * erfinv(2p - 1), with erfinv(x) = sign(x) * sqrt(sqrt(t^2 - L / a) - t), where
# L = log(1 - x^2) and t = 2 / (pi a) + L / 2: Winitzki, A handy approximation for the error
# function and its inverse, 2008.
PROBIT = (MUL + ADD) + (MUL + ADD + LOG) + (MUL + ADD) + (2 * MUL + ADD + SQRT) + (ADD + SQRT) + (
    CMP + 2 * MUL
)  # fmt: skip

_POST_TRANSFORM_OPS: Mapping[str, int] = {
    "NONE": 0,
    "SOFTMAX": SOFTMAX,
    "LOGISTIC": SIGMOID,
    "SOFTMAX_ZERO": CMP + SOFTMAX,
    "PROBIT": PROBIT,
}
# In the newer TreeEnsemble it is a number.
_POST_TRANSFORMS = tuple(_POST_TRANSFORM_OPS)

# What a kernel does to each dot product: gamma * d + coef0 to a power, or into tanh;
# exp(-gamma * squared distance).
_KERNEL_OPS: Mapping[str, int] = {
    "LINEAR": 0,
    "POLY": MUL + ADD + POW,
    "RBF": MUL + EXP,
    "SIGMOID": MUL + ADD + TANH,
}


def count_linear_classifier(node: Node) -> Cost:
    """A score of each class, of which the largest wins."""
    rows, features = _rows_and_features(node)
    coefficients = _length(node, "coefficients")
    classes = coefficients // features if features else 0
    return Cost(
        (Contraction(rows * coefficients, (0, None)),),
        rows * classes * (_intercept(node, "intercepts") + _post_transform(node) + CMP),
    )


def count_linear_regressor(node: Node) -> Cost:
    """A score of each target."""
    rows, _ = _rows_and_features(node)
    return Cost(
        (Contraction(rows * _length(node, "coefficients"), (0, None)),),
        rows
        * node.attr_int("targets", 1)
        * (_intercept(node, "intercepts") + _post_transform(node)),
    )


def count_svm_classifier(node: Node) -> Cost:
    """The kernel of each row with each support vector, then a vote of each pair of classes.

    Without support vectors it is a linear classifier. Probabilities count the sigmoid of each
    pair, without the coupling of the pairs.
    """
    rows, features = _rows_and_features(node)
    coefficients = _length(node, "coefficients")
    votes = _length(node, "rho") * (ADD + CMP + ADD)
    probabilities = _length(node, "prob_a") * (MUL + ADD + SIGMOID)
    classes = max(_length(node, "classlabels_ints"), _length(node, "classlabels_strings"))
    return _kernel(node, rows, features) + Cost(
        (Contraction(rows * coefficients, (0, None)),),
        rows * (votes + probabilities + classes * (_post_transform(node) + CMP)),
    )


def count_svm_regressor(node: Node) -> Cost:
    """The kernel of each row with each support vector, weighted and summed."""
    rows, features = _rows_and_features(node)
    one_class = CMP if node.attr_int("one_class", 0) else 0
    return _kernel(node, rows, features) + Cost(
        (Contraction(rows * _length(node, "coefficients"), (0, None)),),
        rows * (ADD + one_class + _post_transform(node)),
    )


def count_tree_ensemble(node: Node) -> Cost:
    """Trees whose nodes are inner ones alone, the leaves apart from them."""
    rows, _ = _rows_and_features(node)
    roots = node.attr_ints("tree_roots")
    branches = tuple(
        zip(
            _children(node, "nodes_truenodeids", "nodes_trueleafs"),
            _children(node, "nodes_falsenodeids", "nodes_falseleafs"),
            strict=True,
        )
    )
    steps = sum(_depth(branches, root) for root in roots)
    targets = node.attr_int("n_targets", 1)
    transformed = rows * targets * _post_transform(node)
    return elementwise(rows * (steps * (MOV + CMP) + len(roots) * ADD) + transformed)


def count_tree_ensemble_classifier(node: Node) -> Cost:
    """Trees whose leaves weigh classes, of which the largest sum wins."""
    labels = max(_length(node, "classlabels_int64s"), _length(node, "classlabels_strings"))
    return elementwise(_trees(node, "class_ids", labels, per_target=CMP))


def count_tree_ensemble_regressor(node: Node) -> Cost:
    """Trees whose leaves add to targets."""
    return elementwise(_trees(node, "target_ids", node.attr_int("n_targets", 1), per_target=0))


def count_normalizer(node: Node) -> Cost:
    """Each element over the largest, the sum, or the root of the sum of squares of its row."""
    rows, _ = _rows_and_features(node)
    size = node.input(0).size
    norm = node.attr_str("norm", "MAX")
    gathered = size * CMP if norm == "MAX" else norm_ops(1 if norm == "L1" else 2, size, rows)
    return elementwise(gathered + size * DIV)


def count_dict_vectorizer(node: Node) -> Cost:
    """A look-up of each word of the vocabulary."""
    words = max(_length(node, "string_vocabulary"), _length(node, "int64_vocabulary"))
    return elementwise(words * MOV)


def _kernel(node: Node, rows: int, features: int) -> Cost:
    """Each row with each support vector."""
    values = _length(node, "support_vectors")
    if not values or not features:
        return Cost()
    kind = node.attr_str("kernel_type", "LINEAR")
    differences = rows * values * ADD if kind == "RBF" else 0
    return Cost(
        (Contraction(rows * values, (0, None)),),
        differences + rows * (values // features) * _KERNEL_OPS[kind],
    )


def _trees(node: Node, leaf_entries: str, targets: int, *, per_target: int) -> int:
    """All rows down all trees, their leaves' weights added, base values and post-transform."""
    rows, _ = _rows_and_features(node)
    ids = node.attr_ints("nodes_nodeids")
    trees = node.attr_ints("nodes_treeids")
    modes = [str(mode) for mode in node.attr_ints("nodes_modes")]
    position = {key: index for index, key in enumerate(zip(trees, ids, strict=True))}
    branches = tuple(
        (None, None)
        if mode == "LEAF"
        else (position.get((tree, true)), position.get((tree, false)))
        for tree, mode, true, false in zip(
            trees,
            modes,
            node.attr_ints("nodes_truenodeids"),
            node.attr_ints("nodes_falsenodeids"),
            strict=True,
        )
    )
    inner = {child for pair in branches for child in pair if child is not None}
    roots = [index for index in range(len(branches)) if index not in inner]
    # A leaf is where `_depth` would still count a step, though nothing is compared there.
    steps = sum(_depth(branches, root) - 1 for root in roots)
    leaves = max(1, modes.count("LEAF"))
    added = len(roots) * _length(node, leaf_entries) // leaves * ADD
    per_score = _intercept(node, "base_values") + _post_transform(node) + per_target
    return rows * (steps * (MOV + CMP) + added + targets * per_score)


def _depth(branches: Sequence[tuple[int | None, int | None]], root: int) -> int:
    """Nodes on the longest way down from `root`; a node that is met again adds nothing."""
    depth, level, seen = 0, [root], {root}
    while level:
        depth += 1
        below = {
            child
            for index in level
            for child in branches[index]
            if child is not None and child not in seen
        }
        seen |= below
        level = list(below)
    return depth


def _children(node: Node, ids: str, leaves: str) -> tuple[int | None, ...]:
    """The inner node that each node's branch goes to; None where it goes to a leaf."""
    flags = node.attr_ints(leaves)
    targets = node.attr_ints(ids)
    return tuple(None if leaf else child for child, leaf in zip(targets, flags, strict=True))


def _rows_and_features(node: Node) -> tuple[int, int]:
    """One row where the input is a vector."""
    dims = node.input(0).dims
    return (1, prod(dims)) if len(dims) < 2 else (dims[0], prod(dims[1:]))


def _length(node: Node, name: str) -> int:
    """How many values a list attribute has; 0 where it is absent."""
    value = node.attributes.get(name)
    return len(value) if isinstance(value, tuple) else 0


def _intercept(node: Node, name: str) -> int:
    return ADD if _length(node, name) else 0


def _post_transform(node: Node) -> int:
    """Operations for each score."""
    number = node.attr_int("post_transform", 0)
    return _POST_TRANSFORM_OPS[node.attr_str("post_transform", _POST_TRANSFORMS[number])]


COUNTERS: Mapping[str, Counter] = {
    "ai.onnx.ml::ArrayFeatureExtractor": per_output_element(MOV),
    "ai.onnx.ml::Binarizer": per_input_element(CMP),
    "ai.onnx.ml::CastMap": per_output_element(MOV),
    "ai.onnx.ml::CategoryMapper": per_input_element(MOV),
    "ai.onnx.ml::DictVectorizer": count_dict_vectorizer,
    "ai.onnx.ml::FeatureVectorizer": per_output_element(MOV),
    "ai.onnx.ml::Imputer": per_input_element(CMP + MOV),
    "ai.onnx.ml::LabelEncoder": per_input_element(MOV),
    "ai.onnx.ml::LinearClassifier": count_linear_classifier,
    "ai.onnx.ml::LinearRegressor": count_linear_regressor,
    "ai.onnx.ml::Normalizer": count_normalizer,
    "ai.onnx.ml::OneHotEncoder": per_output_element(CMP),
    "ai.onnx.ml::SVMClassifier": count_svm_classifier,
    "ai.onnx.ml::SVMRegressor": count_svm_regressor,
    "ai.onnx.ml::Scaler": per_input_element(ADD + MUL),
    "ai.onnx.ml::TreeEnsemble": count_tree_ensemble,
    "ai.onnx.ml::TreeEnsembleClassifier": count_tree_ensemble_classifier,
    "ai.onnx.ml::TreeEnsembleRegressor": count_tree_ensemble_regressor,
    "ai.onnx.ml::ZipMap": per_input_element(MOV),
}
