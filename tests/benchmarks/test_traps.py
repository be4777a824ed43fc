"""The benchmark of traps knows every operator whose values decide, and sees what is missed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from results import Result
from trap_models import RECIPES, array_of, name_constants, traps
from trap_search import (
    Constant,
    Retrained,
    Searched,
    alterations,
    choose,
    count_unusual,
    find_constants,
    retrain,
    start,
    why_not_settled,
)
from traps import Sprung, expectations, settings_of, tables

from pytest_modelperf.graph.deciding_inputs import deciding_inputs
from tests.docs.test_evidence import result_of
from tests.support.graph_models import parse, random_floats

# Operators whose values decide, and of which there is no trap: a value changes their time too
# little, their inputs are no tensors, or their weights need a form of their own.
WITHOUT_TRAP = frozenset({
    "AttnLSTM", "BifurcationDetector", "CastMap", "DecoderMaskedMultiHeadAttention",
    "DictVectorizer", "DynamicQuantizeLSTM", "DynamicSlice", "DynamicTimeWarping",
    "GatedDeltaNet", "GatherBlockQuantized", "GatherPacked", "LabelEncoder",
    "MRotaryEmbedding", "MatMulFpQ4", "MatMulNBits", "MoEGroupRouter", "Multinomial",
    "NGramHashMapping", "OneHotEncoder", "QAttention", "QEmbedLayerNormalization", "QMoE",
    "SparseAttention", "SparseToDenseMatMul", "StringNormalizer", "TensorScatter",
    "TreeEnsemble", "TreeEnsembleClassifier", "VarlenCausalConvWithState",
    "VarlenNGramHashMapping", "WordConvEmbedding",
})  # fmt: skip


def test_each_operator_whose_values_decide_has_a_trap() -> None:
    known = {
        (kernel.domain, kernel.op_name)
        for kernel in runtime.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider"
    }
    deciding = {name for domain, name in known if deciding_inputs(name, domain)}
    trapped = {recipe.operator.removeprefix("com.microsoft ") for recipe in RECIPES}
    # An older runtime lacks some of the operators.
    assert deciding - trapped <= WITHOUT_TRAP
    assert WITHOUT_TRAP.isdisjoint(trapped)


def test_each_trap_has_a_name_of_its_own_and_another_value() -> None:
    names = [trap.name for trap in traps()]
    assert len(set(names)) == len(names)
    for recipe in RECIPES:
        before, after = map(array_of, (recipe.before, recipe.after))
        assert (before.dtype, before.shape) == (after.dtype, after.shape), recipe.operator
        assert not np.array_equal(before, after), recipe.operator


@pytest.mark.parametrize("way", sorted({way for r in RECIPES for way in r.ways.split()}))
def test_a_value_reaches_its_operator_in_each_way(way: str) -> None:
    """One trap of each way runs, and its models differ in nothing but stored numbers."""
    trap = next(trap for trap in traps() if trap.way == way)
    first, second = (trap.model(slower=slower) for slower in (False, True))
    assert [node.op_type for node in first.graph.node] == [
        node.op_type for node in second.graph.node
    ]
    assert first.SerializeToString() != second.SerializeToString()
    session = start(second, trap.options).session
    x = random_floats(
        *(size if isinstance(size, int) else 1 for size in session.get_inputs()[0].shape)
    )
    (_,) = session.run(None, {"x": x})


def test_numbers_among_operands_are_constants() -> None:
    assert name_constants("y = Slice (x, [0, 0], v) z = Loop (, true, y)") == (
        "constant0 = Constant <value_ints = [0, 0]> () constant1 = Constant <value = bool {1}> () "
        "y = Slice (x, constant0, v) z = Loop (, constant1, y)"
    )


def test_only_traps_with_options_of_the_engine_have_them_in_their_table() -> None:
    chosen = {
        way: next(trap for trap in traps() if trap.way == way) for way in ("stored", "unoptimized")
    }
    assert settings_of(chosen).splitlines()[3:] == [
        '[tool.modelperf.models."stored"]',
        "",
        '[tool.modelperf.models."unoptimized"]',
        'engine_options = {graph_optimization_level = "none"}',
    ]


# -- real models


def test_alterations_stay_normal_numbers_and_change_something() -> None:
    assert [how for how, _ in alterations(np.array([1.0, 2.0, 4.0, 8.0], np.float32))] == [
        "shuffled", "scaled", "inverted",
    ]  # fmt: skip
    assert [how for how, _ in alterations(np.array([True]))] == ["inverted"]
    assert [how for how, _ in alterations(np.array([3]))] == ["counted up"]
    assert not dict(alterations(np.zeros(0, np.float32)))
    largest = np.array([np.finfo(np.float32).max], np.float32)
    assert "scaled" not in dict(alterations(largest))


INNER = """g (float[4,16] x, bool c) => (float[M,N] y) {
    two = Constant <value = int64[2] {2, 1}> ()
    h = MatMul (x, w)
    y = If (c) <
        then_branch = a () => (float[M,N] p) { p = Tile (h, two) },
        else_branch = b () => (float[M,N] q) { q = MatMul (h, w) }
    >
}"""


def test_constants_are_found_with_their_uses_also_in_bodies() -> None:
    model = parse(INNER, {"w": random_floats(16, 16), "unused": random_floats(2)})
    found = {each.name: each.uses for each in find_constants(model.graph)}
    assert found == {"w": {("MatMul", 1)}, "two": {("Tile", 1)}}


def test_some_constants_of_each_kind_are_altered() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu (x) }", {"w": random_floats(16)})
    (tensor,) = model.graph.initializer
    alike = [Constant(tensor, str(index), frozenset({("Mul", 1)})) for index in range(9)]
    other = Constant(tensor, "other", frozenset({("Add", 1)}))
    assert [each.name for each in choose([*alike, other])] == ["0", "1", "other"]


def test_unusual_numbers_are_counted_also_between_operators() -> None:
    model = parse("g (float[4] x) => (float[4] y) { z = Mul (x, x) y = Relu (z) }")
    feeds = {"x": np.array([1e-20, -1e-20, 1e30, 1.0], np.float32)}
    assert count_unusual(model, feeds) == 2 * 3


def test_a_model_that_is_trained_again_is_settled_and_one_of_other_work_is_not() -> None:
    model = parse(INNER, {"w": random_floats(16, 16)})
    before = start(model).plan
    weights = model.graph.initializer[0].raw_data
    retrain(model)
    (tensor,) = model.graph.initializer
    assert tensor.raw_data != weights
    assert (tensor.name, model.graph.input[0].name) == ("renamed_w", "x")
    assert why_not_settled(before, start(model).plan) is None
    model.graph.node[0].attribute[0].t.int64_data[0] = 3
    assert why_not_settled(before, start(model).plan) is not None


# -- what was found


@pytest.mark.parametrize(
    ("slower", "verdict", "how", "is_hole"),
    [
        (2.0, "passed", "plan", True),
        (2.0, "passed", "parts", True),
        (2.0, "unchanged", "unchanged", True),
        (2.0, "inconclusive", "duet", False),
        (2.0, "regressed", "duet", False),
        (1.02, "passed", "plan", False),
        (2.0, None, None, False),
    ],
)
def test_a_slower_model_that_passes_is_a_hole(
    slower: float,
    verdict: str | None,
    how: str | None,
    is_hole: bool,  # noqa: FBT001  # pytest gives it by name
) -> None:
    assert Sprung("Tile (stored)", "Tile", slower, verdict, how).is_hole is is_hole


def found(*sprung: Sprung, slower: tuple[str, ...] = (), reason: str | None = None) -> Result:
    return result_of(
        {
            "traps": [asdict(each) for each in sprung],
            "search": [asdict(Searched("lstm", 5, 9, 7, slower))],
            "retrained": [asdict(Retrained("lstm", reason))],
        },
        "traps",
    )


CAUGHT = Sprung("Tile (stored)", "Tile", 2.0, "regressed", "duet")


def test_enough_traps_without_a_hole_meet_what_is_expected() -> None:
    result = found(*[CAUGHT] * 60)
    assert [each.outcome for each in expectations(result)] == ["met"] * 4
    assert tables(result)["traps holes"] == tables(result)["traps retrained"] == "None."


def test_what_is_missed_is_said() -> None:
    hole = Sprung("Gather (stored)", "Gather", 1.5, "passed", "plan")
    result = found(CAUGHT, hole, slower=("k (Tile 1) scaled: 1.30",), reason="it runs 1 Mul more")
    assert [each.outcome for each in expectations(result)] == ["missed"] * 4
    shown = tables(result)
    assert shown["traps holes"].splitlines()[2:] == [
        "| Gather (stored) | 1.50 times | passed | plan |"
    ]
    assert "| lstm | it runs 1 Mul more |" in shown["traps retrained"]
    assert "k (Tile 1) scaled: 1.30" in shown["traps search"]
    assert "| Tile | 1 | 1 | 2.0 times | 0 |" in shown["traps"]
