"""The benchmark of traps knows every operator whose values decide, and sees what is missed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from commands import write_settings
from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from results import Result
from trap_models import RECIPES, array_of, name_constants, traps
from traps import Sprung, expectations, make_feeds, start, tables

from pytest_modelperf.graph.deciding_inputs import deciding_inputs
from tests.docs.test_evidence import result_of

# Operators whose values decide, but that have no trap: a value changes their time too
# little, their inputs are not tensors, or their weights need a form of their own.
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
    session = start(trap, slower=True)
    (_,) = session.run(None, make_feeds(session))


def test_numbers_among_operands_are_constants() -> None:
    assert name_constants("y = Slice (x, [0, 0], v) z = Loop (, true, y)") == (
        "constant0 = Constant <value_ints = [0, 0]> () constant1 = Constant <value = bool {1}> () "
        "y = Slice (x, constant0, v) z = Loop (, constant1, y)"
    )


def test_only_traps_with_options_of_the_engine_have_them_in_their_table(tmp_path: Path) -> None:
    chosen = {
        way: next(trap for trap in traps() if trap.way == way) for way in ("stored", "unoptimized")
    }
    write_settings(tmp_path, {name: trap.settings for name, trap in chosen.items()})
    assert (tmp_path / "pyproject.toml").read_text().splitlines() == [
        '[tool.modelperf.models."stored"]',
        '[tool.modelperf.models."unoptimized"]',
        'engine_options = {graph_optimization_level = "none"}',
    ]


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


def found(*sprung: Sprung) -> Result:
    return result_of({"traps": [asdict(each) for each in sprung]}, "traps")


CAUGHT = Sprung("Tile (stored)", "Tile", 2.0, "regressed", "duet")


def test_enough_traps_without_a_hole_meet_what_is_expected() -> None:
    result = found(*[CAUGHT] * 60)
    assert [each.outcome for each in expectations(result)] == ["met"] * 2
    assert tables(result)["traps holes"] == "None."


def test_missed_traps_are_shown() -> None:
    hole = Sprung("Gather (stored)", "Gather", 1.5, "passed", "plan")
    result = found(CAUGHT, hole)
    assert [each.outcome for each in expectations(result)] == ["missed"] * 2
    shown = tables(result)
    assert shown["traps holes"].splitlines()[2:] == [
        "| Gather (stored) | 1.50 times | passed | plan |"
    ]
    assert "| Tile | 1 | 1 | 2.0 times | 0 |" in shown["traps"]
