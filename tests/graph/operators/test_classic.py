"""Classic machine learning: trees to their depth, scores and kernels as contractions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.operators.classic import PROBIT
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
from pytest_modelperf.graph.structure import Attribute
from tests.graph.operators import nodes
from tests.graph.operators.nodes import node, unknown

SIGMOID = ADD + EXP + ADD + DIV
STEP = MOV + CMP


def cost(op: str, *inputs: tuple[int, ...], **attributes: Attribute) -> Cost:
    call = replace(node("ai.onnx.ml::" + op, inputs, [unknown()]), attributes=attributes)
    return nodes.cost(call)


def ops(op: str, *inputs: tuple[int, ...], **attributes: Attribute) -> int:
    found = cost(op, *inputs, **attributes)
    assert found.contractions == ()
    return found.elementwise_ops


def test_a_linear_classifier_scores_each_class() -> None:
    weights = (0.5,) * 12
    plain = cost("LinearClassifier", (7, 4), coefficients=weights)
    assert plain == Cost((Contraction(7 * 4 * 3, (0, None)),), 7 * 3 * CMP)
    logistic = cost(
        "LinearClassifier", (7, 4), coefficients=weights, intercepts=(0.0,) * 3,
        post_transform="LOGISTIC",
    )  # fmt: skip
    assert logistic == Cost(plain.contractions, 7 * 3 * (ADD + SIGMOID + CMP))


def test_a_linear_regressor_scores_each_target() -> None:
    call = cost(
        "LinearRegressor", (7, 4), coefficients=(1.0,) * 8, intercepts=(0.0, 0.0), targets=2
    )
    assert call == Cost((Contraction(7 * 8, (0, None)),), 7 * 2 * ADD)
    vector = cost("LinearRegressor", (4,), coefficients=(1.0,) * 4, post_transform="PROBIT")
    assert vector == Cost((Contraction(4, (0, None)),), PROBIT)


@pytest.mark.parametrize(
    ("kernel", "each", "differences"),
    [
        ("LINEAR", 0, 0),
        ("POLY", MUL + ADD + POW, 0),
        ("RBF", MUL + EXP, ADD),
        ("SIGMOID", MUL + ADD + TANH, 0),
    ],
)
def test_every_row_meets_every_support_vector(kernel: str, each: int, differences: int) -> None:
    call = cost(
        "SVMRegressor", (7, 4), kernel_type=kernel, support_vectors=(0.1,) * 20,
        coefficients=(1.0,) * 5, rho=(0.0,), n_supports=5,
    )  # fmt: skip
    assert call.contractions == (Contraction(7 * 20, (0, None)), Contraction(7 * 5, (0, None)))
    assert call.elementwise_ops == 7 * (20 * differences + 5 * each + ADD)


def test_support_vectors_vote_for_each_pair_of_classes() -> None:
    call = cost(
        "SVMClassifier", (7, 4), kernel_type="LINEAR", support_vectors=(0.1,) * 20,
        vectors_per_class=(2, 2, 1), coefficients=(1.0,) * 10, rho=(0.0,) * 3,
        classlabels_ints=(0, 1, 2),
    )  # fmt: skip
    assert call.macs == 7 * (20 + 10)
    assert call.elementwise_ops == 7 * (3 * (ADD + CMP + ADD) + 3 * CMP)


def test_a_classifier_without_support_vectors_is_linear() -> None:
    call = cost("SVMClassifier", (7, 4), coefficients=(1.0,) * 12, classlabels_ints=(0, 1, 2))
    assert call.contractions == (Contraction(7 * 12, (0, None)),)


@dataclass(frozen=True)
class Tree:
    """A node with two branches; None is a leaf."""

    true: Tree | None
    false: Tree | None


trees = st.recursive(
    st.builds(Tree, st.none(), st.none()),
    lambda inner: st.builds(Tree, st.none() | inner, st.none() | inner),
    max_leaves=20,
)


def depth(tree: Tree | None) -> int:
    """Comparisons on the longest way down."""
    return 0 if tree is None else 1 + max(depth(tree.true), depth(tree.false))


def leaves(tree: Tree | None) -> int:
    return 1 if tree is None else leaves(tree.true) + leaves(tree.false)


def older_form(forest: list[Tree]) -> dict[str, Attribute]:
    """Attributes of TreeEnsembleRegressor and TreeEnsembleClassifier: leaves are nodes."""
    rows: list[tuple[int, int, str, int, int]] = []
    for number, tree in enumerate(forest):
        numbers = iter(range(1_000))

        def add(branch: Tree | None, number: int = number) -> int:
            own = next(numbers)  # noqa: B023  # it is called before the loop goes on
            at = len(rows)
            rows.append((number, own, "LEAF", 0, 0))
            if branch is not None:
                rows[at] = (number, own, "BRANCH_LEQ", add(branch.true), add(branch.false))
            return own

        add(tree)
    tree_ids, node_ids, modes, true, false = zip(*rows, strict=True)
    return {
        "nodes_treeids": tree_ids, "nodes_nodeids": node_ids, "nodes_modes": modes,
        "nodes_truenodeids": true, "nodes_falsenodeids": false,
    }  # fmt: skip


def newer_form(forest: list[Tree]) -> dict[str, Attribute]:
    """Attributes of TreeEnsemble: leaves are apart, and a flag says which list an index is of."""
    rows: list[tuple[int, int, int, int]] = []
    leaf_count = 0

    def add(tree: Tree) -> int:
        nonlocal leaf_count
        at = len(rows)
        rows.append((0, 0, 0, 0))
        found: list[int] = []
        for branch in (tree.true, tree.false):
            if branch is None:
                found += [leaf_count, 1]
                leaf_count += 1
            else:
                found += [add(branch), 0]
        rows[at] = (found[0], found[1], found[2], found[3])
        return at

    roots = tuple(add(tree) for tree in forest)
    true, true_leaf, false, false_leaf = zip(*rows, strict=True)
    return {
        "tree_roots": roots, "nodes_truenodeids": true, "nodes_trueleafs": true_leaf,
        "nodes_falsenodeids": false, "nodes_falseleafs": false_leaf,
    }  # fmt: skip


@given(st.lists(trees, min_size=1, max_size=4))
def test_each_row_goes_to_the_deepest_leaf_of_each_tree(forest: list[Tree]) -> None:
    steps = sum(depth(tree) for tree in forest)
    entries = (0,) * sum(leaves(tree) for tree in forest)
    expected = 5 * (steps * STEP + len(forest) * ADD)
    older = older_form(forest)
    assert ops("TreeEnsembleRegressor", (5, 9), **older, target_ids=entries) == expected
    assert ops("TreeEnsemble", (5, 9), **newer_form(forest)) == expected


def test_a_tree_classifier_adds_the_base_values_and_picks_the_largest() -> None:
    attributes = older_form([Tree(Tree(None, None), None)])
    labels: dict[str, Attribute] = {"classlabels_int64s": (0, 1, 2), "class_ids": (0, 1, 2) * 3}
    plain = ops("TreeEnsembleClassifier", (5, 9), **attributes, **labels)
    assert plain == 5 * (2 * STEP + 3 * ADD + 3 * CMP)
    based = ops(
        "TreeEnsembleClassifier", (5, 9), **attributes, **labels, base_values=(0.0,) * 3,
        post_transform="LOGISTIC",
    )  # fmt: skip
    assert based == plain + 5 * 3 * (ADD + SIGMOID)


def test_a_newer_ensemble_numbers_its_post_transforms() -> None:
    attributes = newer_form([Tree(None, None)])
    plain = ops("TreeEnsemble", (5, 9), **attributes, n_targets=3)
    logistic = ops("TreeEnsemble", (5, 9), **attributes, n_targets=3, post_transform=2)
    assert logistic == plain + 15 * SIGMOID
    softmax = ops("TreeEnsemble", (5, 9), **attributes, n_targets=3, post_transform=1)
    assert softmax == plain + 15 * (CMP + ADD + EXP + ADD + DIV)
    of_what_is_not_zero = ops("TreeEnsemble", (5, 9), **attributes, n_targets=3, post_transform=3)
    assert of_what_is_not_zero == softmax + 15 * CMP


def test_a_probit_is_counted_as_its_formula() -> None:
    """Two roots, one logarithm, and 13 sums, products and comparisons."""
    assert PROBIT == 2 * SQRT + LOG + 13


def test_normalizers() -> None:
    assert ops("Normalizer", (2, 5)) == 10 * (CMP + DIV)
    assert ops("Normalizer", (2, 5), norm="L1") == 10 * (CMP + ADD + DIV)
    assert ops("Normalizer", (2, 5), norm="L2") == 10 * (MUL + ADD + DIV) + 2 * SQRT


def test_encoders_look_up_each_element() -> None:
    assert ops("Scaler", (2, 5)) == 10 * (ADD + MUL)
    assert ops("Imputer", (2, 5)) == 10 * (CMP + MOV)
    for op in ("CategoryMapper", "LabelEncoder", "ZipMap"):
        assert ops(op, (2, 5)) == 10 * MOV
    assert ops("Binarizer", (2, 5)) == 10 * CMP
    assert ops("DictVectorizer", string_vocabulary=("a", "b", "c")) == 3 * MOV
    for op in ("ArrayFeatureExtractor", "CastMap", "FeatureVectorizer"):
        picked = node("ai.onnx.ml::" + op, [unknown(), unknown()], [(2, 5)])
        assert nodes.cost(picked) == Cost(elementwise_ops=10 * MOV)
    one_hot = node("ai.onnx.ml::OneHotEncoder", [(5,)], [(5, 3)], cats_int64s=(1, 2, 3))
    assert nodes.cost(one_hot) == Cost(elementwise_ops=15 * CMP)
