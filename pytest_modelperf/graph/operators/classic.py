"""Classic machine learning: trees, support vectors, linear models, and encoders.

Weights are attributes here. The scores of a linear model, and the dot products or squared
distances of a kernel, are contractions of the input with them. Every step of a row down a tree
fetches a feature and compares it, and each row is counted down to the deepest leaf of each tree.
A look-up of a key is one MOV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from pytest_modelperf.graph.operators.cost import (
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
)
from pytest_modelperf.graph.operators.operator import (
    SIGMOID,
    SOFTMAX,
    Demand,
    Operator,
    elementwise,
    norm_ops,
    per_input,
    per_output,
    rows_of,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    OutputType,
    dtype_of,
    like,
    outputs,
    product,
    shape_of,
)
from pytest_modelperf.graph.structure import Node

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
# The newer TreeEnsemble has the index of a name instead of the name.
_POST_TRANSFORMS = tuple(_POST_TRANSFORM_OPS)
# The operations of a kernel on each dot product d: gamma * d + coef0 to a power or into tanh.
# RBF is exp(-gamma * squared distance).
_KERNEL_OPS: Mapping[str, int] = {
    "LINEAR": 0,
    "POLY": MUL + ADD + POW,
    "RBF": MUL + EXP,
    "SIGMOID": MUL + ADD + TANH,
}


def count_linear_classifier(node: Node) -> Cost:
    """Count a score for each class, and the choice of the largest."""
    _, features = _rows_and_features(node)
    classes = _length(node, "coefficients") // features if features else 0
    return _weighted(node, classes * (_intercept(node, "intercepts") + _post_transform(node) + CMP))


def count_linear_regressor(node: Node) -> Cost:
    per_target = _intercept(node, "intercepts") + _post_transform(node)
    return _weighted(node, node.attr_int("targets", 1) * per_target)


def count_svm_classifier(node: Node) -> Cost:
    """Count the kernel of each row with each support vector, and a vote of each pair of classes."""
    # Without support vectors it is a linear classifier. Probabilities count the sigmoid of each
    # pair, but not the coupling of the pairs.
    votes = _length(node, "rho") * (ADD + CMP + ADD)
    probabilities = _length(node, "prob_a") * (MUL + ADD + SIGMOID)
    classes = max(_length(node, "classlabels_ints"), _length(node, "classlabels_strings"))
    per_row = votes + probabilities + classes * (_post_transform(node) + CMP)
    return _kernel(node) + _weighted(node, per_row)


def count_svm_regressor(node: Node) -> Cost:
    """Count the kernel of each row with each support vector, weighted and summed."""
    one_class = CMP if node.attr_int("one_class", 0) else 0
    return _kernel(node) + _weighted(node, ADD + one_class + _post_transform(node))


def count_tree_ensemble(node: Node) -> Cost:
    """Count trees whose leaves are not in the list of nodes, but in a list of their own."""
    rows, _ = _rows_and_features(node)
    roots = node.attr_ints("tree_roots")
    true = _children(node, "nodes_truenodeids", "nodes_trueleafs")
    false = _children(node, "nodes_falsenodeids", "nodes_falseleafs")
    branches = tuple(zip(true, false, strict=True))
    steps = sum(_depth(branches, root) for root in roots)
    targets = node.attr_int("n_targets", 1)
    transformed = rows * targets * _post_transform(node)
    return elementwise(rows * (steps * (MOV + CMP) + len(roots) * ADD) + transformed)


def count_tree_classifier(node: Node) -> Cost:
    """Count trees whose leaves weigh classes, and the choice of the class with the largest sum."""
    labels = max(_length(node, "classlabels_int64s"), _length(node, "classlabels_strings"))
    return elementwise(_trees(node, "class_ids", labels, per_target=CMP))


def count_tree_regressor(node: Node) -> Cost:
    """Count trees whose leaves add to targets."""
    return elementwise(_trees(node, "target_ids", node.attr_int("n_targets", 1), per_target=0))


def count_normalizer(node: Node) -> Cost:
    """Count the division of each element by the norm of its row: maximum, L1 or L2."""
    rows, _ = _rows_and_features(node)
    size = node.input(0).size
    norm = node.attr_str("norm", "MAX")
    gathered = size * CMP if norm == "MAX" else norm_ops(1 if norm == "L1" else 2, size, rows)
    return elementwise(gathered + size * DIV)


def count_dict_vectorizer(node: Node) -> Cost:
    words = max(_length(node, "string_vocabulary"), _length(node, "int64_vocabulary"))
    return elementwise(words * MOV)


def _weighted(node: Node, per_row: int) -> Cost:
    rows, _ = _rows_and_features(node)
    return Cost((Contraction(rows * _length(node, "coefficients"), (0, None)),), rows * per_row)


def _kernel(node: Node) -> Cost:
    rows, features = _rows_and_features(node)
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
    """Count all rows down all trees, the sums of the leaves, base values and post-transform."""
    rows, _ = _rows_and_features(node)
    ids, trees = node.attr_ints("nodes_nodeids"), node.attr_ints("nodes_treeids")
    modes = [str(mode) for mode in node.attr_ints("nodes_modes")]
    position = {key: index for index, key in enumerate(zip(trees, ids, strict=True))}
    ends = (node.attr_ints(f"nodes_{way}nodeids") for way in ("true", "false"))
    branches = tuple(
        (None, None)
        if mode == "LEAF"
        else (position.get((tree, true)), position.get((tree, false)))
        for tree, mode, true, false in zip(trees, modes, *ends, strict=True)
    )
    inner = {child for pair in branches for child in pair if child is not None}
    roots = [index for index in range(len(branches)) if index not in inner]
    # `_depth` also counts the leaf, which compares no feature.
    steps = sum(_depth(branches, root) - 1 for root in roots)
    leaves = max(1, modes.count("LEAF"))
    added = len(roots) * _length(node, leaf_entries) // leaves * ADD
    per_score = _intercept(node, "base_values") + _post_transform(node) + per_target
    return rows * (steps * (MOV + CMP) + added + targets * per_score)


def _depth(branches: Sequence[tuple[int | None, int | None]], root: int) -> int:
    """Count the nodes on the longest way down from `root`, each node once."""
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
    flags = node.attr_ints(leaves)
    targets = node.attr_ints(ids)
    return tuple(None if leaf else child for child, leaf in zip(targets, flags, strict=True))


def _rows_and_features(node: Node) -> tuple[int, int]:
    """Return the numbers of rows and features, with a vector as one row."""
    dims = node.input(0).dims
    return (1, prod(dims)) if len(dims) < 2 else (dims[0], prod(dims[1:]))


def _length(node: Node, name: str) -> int:
    value = node.attributes.get(name)
    return len(value) if isinstance(value, tuple) else 0


def _intercept(node: Node, name: str) -> int:
    return ADD if _length(node, name) else 0


def _post_transform(node: Node) -> int:
    number = node.attr_int("post_transform", 0)
    return _POST_TRANSFORM_OPS[node.attr_str("post_transform", _POST_TRANSFORMS[number])]


def _rows(node: Node) -> Dim:
    shape = shape_of(node, 0)
    return shape[0] if shape and len(shape) == 2 else None


def shape_regressor(node: Node, targets: str | None = None) -> Outputs:
    """Return floats for each row: the number in the attribute `targets`, or one."""
    return outputs("float32", (_rows(node), node.attr_int(targets, 1) if targets else 1))


def shape_classifier(node: Node, numbers: str, scores: Callable[[Node, int], Dim]) -> Outputs:
    """Return a class for each row, a text or one of the `numbers`, and the scores."""
    rows, texts = _rows(node), node.attr_ints("classlabels_strings")
    classes = len(texts or node.attr_ints(numbers))
    found = OutputType("string" if texts else "int64", (rows,))
    return found, OutputType("float32", (rows, scores(node, classes)))


def _scores_of_svm(node: Node, classes: int) -> Dim:
    """Return one score per class, or one per pair of classes without probabilities."""
    # Two classes always have one score each.
    if not node.attr_ints("vectors_per_class"):
        return None
    is_by_class = classes == 2 or node.attr_ints("prob_a")
    return classes if is_by_class else classes * (classes - 1) // 2


def shape_features(node: Node) -> Outputs:
    """Return the chosen elements of each row, flattened. A vector is one row."""
    shape, chosen = shape_of(node, 0), shape_of(node, 1)
    count = None if chosen is None else product(*chosen)
    return outputs(dtype_of(node, 0), (*(shape[:-1] or (1,)), count) if shape else None)


def shape_feature_vectorizer(node: Node) -> Outputs:
    """Return the inputs side by side, with the widths of an attribute. A vector is one row."""
    shape = shape_of(node, 0)
    rows = None if not shape else 1 if len(shape) == 1 else shape[0]
    return outputs("float32", (rows, sum(node.attr_ints("inputdimensions")) or None))


def _category(node: Node, _: int) -> Demand | None:
    """Ask for one of the categories, because an encoder may fail at any other value."""
    words = node.attributes.get("cats_strings")
    if isinstance(words, tuple) and words:
        return Demand(words=words)  # type: ignore[arg-type]  # by ONNX's types
    numbers = sorted(node.attr_ints("cats_int64s"))
    if not numbers:
        return None
    first, last = numbers[0], numbers[-1]
    has_gaps = numbers != list(range(first, last + 1))
    return Demand(value=first) if has_gaps else Demand(low=first, high=last)


OPERATORS: Mapping[str, Operator] = {
    "ai.onnx.ml::ArrayFeatureExtractor": Operator(
        per_output(MOV), shape_features, demands={1: rows_of(0, -1)},
    ),
    "ai.onnx.ml::Binarizer": Operator(per_input(CMP)),
    "ai.onnx.ml::CastMap": Operator(per_output(MOV)),
    "ai.onnx.ml::CategoryMapper": Operator(per_input(MOV)),
    "ai.onnx.ml::DictVectorizer": Operator(count_dict_vectorizer),
    "ai.onnx.ml::FeatureVectorizer": Operator(per_output(MOV), shape_feature_vectorizer),
    "ai.onnx.ml::Imputer": Operator(per_input(CMP + MOV), like(0)),
    "ai.onnx.ml::LabelEncoder": Operator(
        per_input(MOV), lambda node: outputs(None, shape_of(node, 0)),
    ),
    "ai.onnx.ml::LinearClassifier": Operator(count_linear_classifier),
    "ai.onnx.ml::LinearRegressor": Operator(
        count_linear_regressor, partial(shape_regressor, targets="targets"),
    ),
    "ai.onnx.ml::Normalizer": Operator(count_normalizer, like(0, dtype="float32")),
    "ai.onnx.ml::OneHotEncoder": Operator(per_output(CMP), demands={0: _category}),
    "ai.onnx.ml::SVMClassifier": Operator(
        count_svm_classifier,
        partial(shape_classifier, numbers="classlabels_ints", scores=_scores_of_svm),
    ),
    "ai.onnx.ml::SVMRegressor": Operator(count_svm_regressor, shape_regressor),
    "ai.onnx.ml::Scaler": Operator(per_input(ADD + MUL), like(0, dtype="float32")),
    "ai.onnx.ml::TreeEnsemble": Operator(count_tree_ensemble),
    "ai.onnx.ml::TreeEnsembleClassifier": Operator(
        count_tree_classifier,
        partial(shape_classifier, numbers="classlabels_int64s", scores=lambda _, n: n or None),
    ),
    "ai.onnx.ml::TreeEnsembleRegressor": Operator(
        count_tree_regressor, partial(shape_regressor, targets="n_targets"),
    ),
    "ai.onnx.ml::ZipMap": Operator(per_input(MOV)),
}  # fmt: skip
