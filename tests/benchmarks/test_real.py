"""The benchmark of real models: its variants, its plan, and its tables."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import real
import real_variants
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from real import Bench, next_rows, plan_comparisons, row_of
from real_results import (
    BLOCK,
    LOAD_5,
    LOAD_10,
    QUIET,
    TAKEN,
    UNCHANGED,
    Compared,
    RealModel,
    Reference,
    Setting,
    compared_of,
    expectations,
    tables,
)
from real_variants import LOAD_DEPTH, LOAD_NAME, LOAD_WIDTH, Cost, add_load, decompose, repeat_block
from results import Result, Rows
from verdicts import chain

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.graph.twin import left_out, read_twin
from pytest_modelperf.profiler.measurements import Block, DuetRound, Noise, Round
from tests.support.benchmark_results import result_of as made_result

ACTIVATED = """
<ir_version: 10, opset_import: ["" : 20]>
activated (float[2, 8] x) => (float[2, 8] y)
<float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] shift = {8, 7, 6, 5, 4, 3, 2, 1},
 float low = {-1.5}, float high = {1.5}>
{
  normed = LayerNormalization <epsilon = 0.01> (x, scale, shift)
  cut = Clip (normed, low, high)
  gelu = Gelu (cut)
  relu = Relu (gelu)
  y = Sigmoid (relu)
}
"""

PLAIN = """
<ir_version: 10, opset_import: ["" : 20]>
plain (int64[1, 3] tokens) => (float[1, 3, 2] y)
<float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}>
{
  y = Gather (table, tokens)
}
"""


def evaluate(proto: onnx.ModelProto, **inputs: NDArray[np.generic]) -> list[NDArray[np.float32]]:
    onnx.checker.check_model(proto)
    return list(ReferenceEvaluator(proto).run(None, inputs))


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.RandomState(3).standard_normal(shape).astype(np.float32)


# -- the variants


@pytest.mark.parametrize("path", sorted(real.TWINS.glob("*.onnx")), ids=lambda path: path.stem)
def test_a_stored_twin_is_one_and_is_small(path: Path) -> None:
    assert path.stat().st_size < 200_000
    assert any(left_out(read_twin(path)))


def test_every_model_has_a_name_of_its_own() -> None:
    assert len(set(real.model_names())) == len(real.model_names()) >= 17


def test_a_load_changes_no_output_and_grows_with_its_rows() -> None:
    proto = onnx.parser.parse_model(PLAIN)
    tokens = np.array([[3, 1, 2]], np.int64)
    loaded = add_load(proto, 5)
    (before,) = evaluate(proto, tokens=tokens)
    after, load = evaluate(loaded, tokens=tokens)
    assert np.array_equal(before, after)
    assert np.isfinite(load)
    assert load != evaluate(loaded, tokens=tokens - 1)[1]
    shapes = onnx.shape_inference.infer_shapes(loaded, data_prop=True).graph.value_info
    products = [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in shapes
        if value.name.removeprefix(f"{LOAD_NAME}_").isdigit()
    ]
    assert products == [[5, LOAD_WIDTH]] * (LOAD_DEPTH + 1)
    assert len(proto.graph.node) == 1, "the twin itself was changed"


def test_decomposed_operators_compute_the_same() -> None:
    proto = onnx.parser.parse_model(ACTIVATED)
    decomposed = decompose(proto)
    assert decomposed is not None
    kinds = {node.op_type for node in decomposed.graph.node}
    assert not kinds & {node.op_type for node in proto.graph.node}
    x = numbers(2, 8)
    assert np.allclose(evaluate(proto, x=x)[0], evaluate(decomposed, x=x)[0], atol=1e-6)
    assert decompose(onnx.parser.parse_model(PLAIN)) is None


@pytest.mark.parametrize("op", ["Relu", "Sigmoid"])
def test_no_constant_is_added_that_no_node_reads(op: str) -> None:
    """The engine refuses unused constants in files of an old version."""
    text = PLAIN.replace("y = Gather (table, tokens)", f"e = Gather (table, tokens) y = {op} (e)")
    decomposed = decompose(onnx.parser.parse_model(text))
    assert decomposed is not None
    read = {name for node in decomposed.graph.node for name in node.input}
    assert {tensor.name for tensor in decomposed.graph.initializer} <= read


def test_an_operator_stays_if_its_arithmetic_would_differ() -> None:
    old = onnx.parser.parse_model(ACTIVATED.replace('"" : 20', '"" : 17'))
    decomposed = decompose(old)
    assert decomposed is not None
    assert "LayerNormalization" in {node.op_type for node in decomposed.graph.node}
    tanh = ACTIVATED.replace("Gelu (cut)", 'Gelu <approximate = "tanh"> (cut)')
    decomposed = decompose(onnx.parser.parse_model(tanh))
    assert decomposed is not None
    assert "Gelu" in {node.op_type for node in decomposed.graph.node}


def products(count: int) -> onnx.ModelProto:
    """A chain of matrix products; after each product the same mask is added."""
    weights, nodes = [], ["mask = Abs (x)", "x0 = Neg (x)"]
    for index in range(count):
        values = ", ".join(f"{value:.1f}" for value in np.eye(4).ravel() * (index + 2))
        weights.append(f"float[4, 4] w{index} = {{{values}}}")
        nodes.append(f"p{index} = MatMul (x{index}, w{index})")
        nodes.append(f"x{index + 1} = Add (p{index}, mask)")
    body = "\n".join([*nodes, f"y = Identity (x{count})"])
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]>\nchain (float[2, 4] x) => (float[2, 4] y)\n'
        f"<{', '.join(weights)}>\n{{\n{body}\n}}"
    )


def costs(proto: onnx.ModelProto) -> dict[str, Cost]:
    return {
        node.output[0]: Cost(32 if node.op_type == "MatMul" else 0, (2, 4))
        for node in proto.graph.node
    }


@pytest.mark.parametrize(("share", "weights"), [(0.05, 1), (0.10, 2)])
def test_a_block_again_is_applied_to_its_own_result(share: float, weights: int) -> None:
    """The copy reads the same mask and has its own weights."""
    proto = products(20)
    repeated = repeat_block(proto, costs(proto), share)
    assert repeated is not None
    known = {each.name for each in proto.graph.initializer}
    copies = [each.name for each in repeated.graph.initializer if each.name not in known]
    again = sorted(int(name.removeprefix(f"{real_variants.PREFIX}again_w")) for name in copies)
    assert len(again) == weights
    # Each product is followed by a sum, but the block ends with its last product.
    steps: list[float | None] = [step for index in range(20) for step in (index + 2.0, None)]
    start, stop = 2 * again[0], 2 * again[-1] + 1
    x = numbers(2, 4) / 1e20
    expected = -x.astype(np.float64)
    for step in (*steps[:stop], *steps[start:stop], *steps[stop:]):
        expected = expected + np.abs(x) if step is None else expected * step
    assert np.allclose(evaluate(repeated, x=x)[0], expected, rtol=1e-4)


def test_of_many_blocks_the_one_of_the_wanted_size_is_repeated() -> None:
    proto = chain(20, 0)
    known = {
        node.output[0]: Cost(100 if node.op_type == "Conv" else 0, (1, 64, 14, 14))
        for node in proto.graph.node
    }
    for share, blocks in ((0.05, 21), (0.10, 22)):
        repeated = repeat_block(proto, known, share)
        assert repeated is not None
        assert Counter(node.op_type for node in repeated.graph.node)["Conv"] == blocks


def test_a_model_of_one_product_has_no_block_to_repeat() -> None:
    proto = products(1)
    assert repeat_block(proto, costs(proto)) is None


# -- the load that takes just so much


@pytest.mark.parametrize("overhead", [0.0, 0.008, 0.02])
@pytest.mark.parametrize("wanted", [0.0525, 0.10])
def test_a_load_is_found_in_a_few_trials(overhead: float, wanted: float) -> None:
    """The time of a load grows with its rows, above a fixed overhead."""
    rows = 700
    for _ in range(real.LOAD_TRIALS):
        slower = overhead + rows * 2e-5
        if abs(slower - wanted) <= real.LOAD_PRECISION * wanted:
            return
        rows = next_rows(rows, slower, wanted)
    pytest.fail(f"{rows} rows are not near")


def test_a_load_that_is_not_seen_becomes_larger_and_is_never_nothing() -> None:
    assert next_rows(10, -0.01, 0.05) == 40
    assert next_rows(1, 0.9, 0.05) == 1


# -- the plan, and going on


def reference(model: str, change: str, ratio: float | None, cores: int = 1) -> Reference:
    return Reference(model, cores, change, None, ratio, ratio, ratio, 9, 2.0)


def test_models_and_changes_take_turns_and_what_has_no_place_is_left_out() -> None:
    references = [
        reference(model, change, ratio)
        for model in ("a", "b")
        for change, ratio in ((LOAD_5, 1.05), (BLOCK, None))
    ]
    plan = plan_comparisons([QUIET, TAKEN], [("a", 1), ("b", 1)], references, 2, 1)
    assert plan[: len(plan) // 2] == [
        Setting(QUIET, 1, "a", UNCHANGED),
        Setting(QUIET, 1, "b", UNCHANGED),
        Setting(QUIET, 1, "a", LOAD_5),
        Setting(QUIET, 1, "b", LOAD_5),
        Setting(QUIET, 1, "a", UNCHANGED),
        Setting(QUIET, 1, "b", UNCHANGED),
    ]
    assert {each.machine for each in plan[len(plan) // 2 :]} == {TAKEN}


@pytest.mark.parametrize(("models", "cores", "is_quiet"), [(20, "1,2", False), (3, "1", True)])
def test_unchanged_comparisons_are_enough_for_a_rate(
    models: int,
    cores: str,
    is_quiet: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    names = [str(number) for number in range(models)]
    options = argparse.Namespace(repetitions=None, models=names, cores=cores, quiet=is_quiet)
    places = models * len(cores.split(",")) * (1 if is_quiet else 2)
    assert 400 <= real.repetitions_of(options) * places < 400 + places


class FakeBench(Bench):
    """A bench whose comparisons all pass without a measurement."""

    def compare(self, setting: Setting) -> Compared:
        made = compared(setting)
        self._keep("comparisons", row_of(made))
        return made


def compared(setting: Setting, verdict: str = "passed", seconds: float = 1.0) -> Compared:
    return Compared(setting, verdict, verdict, verdict, seconds, 9, 1.0, 0.99, 1.01)


def test_a_run_goes_on_where_it_stopped_and_makes_no_comparison_twice(tmp_path: Path) -> None:
    plan = [Setting(QUIET, 1, model, UNCHANGED) for model in ("a", "b", "a")]
    bench = FakeBench(tmp_path, Gate())
    assert [each.setting for each in bench.run(plan, 1)] == plan[:1]
    assert Counter(each.setting for each in bench.run(plan, None)) == Counter(plan)
    kept = (tmp_path / "comparisons.jsonl").read_text()
    assert kept.count("\n") == 3
    other = Setting(QUIET, 1, "c", UNCHANGED)
    assert [each.setting for each in bench.run([other], None)] == [other]


def test_a_comparison_is_read_as_it_was_written() -> None:
    made = compared(Setting(TAKEN, 2, "a", LOAD_10))
    assert compared_of(row_of(made)) == made


def test_the_rounds_of_all_comparisons_are_kept_in_one_file(tmp_path: Path) -> None:
    def side(*times_ns: int) -> Round:
        block = Block(times_ns=times_ns, noise=Noise(wall_ns=1))
        return Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)

    rounds = [
        DuetRound(before=side(1, 2), after=side(3, 4)),
        DuetRound(before=side(5), after=side(6)),
    ]
    path = tmp_path / "rounds.npz"
    for model in ("a", "b"):
        real.keep_rounds(path, Setting(QUIET, 1, model, UNCHANGED), rounds)
    found = np.load(path)
    name = "00001|quiet|1 cores|b|no change"
    kinds = ("before_times_ns", "after_times_ns", "after_switches", "turns")
    assert [found[f"{name}|{kind}"].tolist() for kind in kinds] == [
        [1, 2, 5],
        [3, 4, 6],
        [-1, -1, -1],
        [2, 1],
    ]
    assert len(found.files) == 14


# -- what is made of it


def result_of(
    comparisons: list[Compared], references: list[Reference], models: dict[str, float]
) -> Result:
    rows: Rows = {
        "models": [asdict(RealModel(name, 9, ms, 0.25)) for name, ms in models.items()],
        "references": [asdict(each) for each in references],
        "comparisons": [row_of(each) for each in comparisons],
    }
    return made_result("real", rows)


REFERENCES = [
    reference("quick", LOAD_5, 1.052),
    reference("slow", LOAD_5, 1.08),
    reference("slow", BLOCK, 1.047),
]
COMPARED = [
    compared(Setting(QUIET, 1, "quick", UNCHANGED), "passed", 1.0),
    compared(Setting(QUIET, 1, "quick", UNCHANGED), "inconclusive", 2.0),
    compared(Setting(QUIET, 1, "slow", UNCHANGED), "passed", 7.0),
    compared(Setting(TAKEN, 1, "slow", UNCHANGED), "regressed", 9.0),
    compared(Setting(QUIET, 1, "quick", LOAD_5), "regressed", 3.0),
    compared(Setting(QUIET, 1, "slow", LOAD_5), "passed", 3.0),
    compared(Setting(TAKEN, 1, "slow", BLOCK), "passed", 4.0),
]
RESULT = result_of(COMPARED, REFERENCES, {"slow": 60.0, "quick": 2.0})


def test_what_is_5_percent_slower_is_told_by_its_reference_alone() -> None:
    """The load of `slow` takes 8 % and does not count; its extra block takes 4.7 % and counts."""
    told = {each.what: (each.found, each.outcome) for each in expectations(RESULT)}
    assert told == {
        "unchanged, called slower": ("1 of 4", "missed"),
        "5 % slower, passed": ("1 of 2", "missed"),
        "unchanged, passed: one core, machine as it is": ("2 of 3", "missed"),
        "unchanged, passed: one core, 40 % taken of each core": ("0 of 1", "missed"),
        "5 % slower, found: one core, machine as it is": ("1 of 1", "met"),
        "5 % slower, found: one core, 40 % taken of each core": ("0 of 1", "missed"),
        "check of an unchanged model, up to 10 ms: median, machine as it is": ("1.5 s", "missed"),
        "check of an unchanged model, 40 to 100 ms: median, machine as it is": ("7.0 s", "met"),
    }


def test_comparisons_that_a_plan_settled_show_no_rate_of_false_alarms() -> None:
    settled = replace(COMPARED[0], how="plan")
    text = tables(result_of([settled], REFERENCES, {"quick": 2.0}))["real glance"]
    assert text == (
        "1 real architectures with new weights: 1 of 1 checks passed. "
        "In 1 of them the plan was unchanged, so nothing was timed."
    )
    timed = tables(result_of([settled, COMPARED[0]], REFERENCES, {"quick": 2.0}))["real glance"]
    assert "nothing was timed. Of 1 timed comparisons 0 raised a false alarm" in timed


@pytest.mark.parametrize(
    ("ratio", "width", "counts"),
    [(1.045, 0.02, True), (1.044, 0.0, False), (1.061, 0.0, False), (1.05, 0.021, False)],
)
def test_a_reference_counts_where_it_is_near_5_percent_and_known(
    ratio: float,
    width: float,
    counts: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    made = Reference("a", 1, LOAD_5, 7, ratio, ratio - width / 2, ratio + width / 2 - 1e-9, 9, 2.0)
    assert made.is_5_slower is counts


def test_a_reference_of_one_round_is_not_known() -> None:
    assert not Reference("a", 1, LOAD_5, 7, 1.05, None, None, 1, 2.0).is_5_slower


def test_the_tables_have_a_line_for_each_place_size_model_and_variant() -> None:
    made = tables(RESULT)
    lines = {name: table.splitlines()[2:] for name, table in made.items()}
    assert lines["real"] == [
        "| as it is | 1 | 2 of 3 | 0 of 3 | 1 of 3 | 2.0 | 1 of 1 | 0 of 1 | 0 of 1 | 3.0 |",
        "| 40 % taken | 1 | 0 of 1 | 1 of 1 | 0 of 1 | 9.0 | 0 of 1 | 1 of 1 | 0 of 1 | 4.0 |",
    ]
    assert lines["real times"] == [
        "| up to 10 ms | as it is | 1 | 1.5 | 3.0 |",
        "| 40 to 100 ms | as it is | 1 | 7.0 | - |",
        "| 40 to 100 ms | 40 % taken | 1 | 9.0 | 4.0 |",
    ]
    assert lines["real cost"][:-2] == [
        "| up to 10 ms | 1.5 s | 15 s | 2.5 min | 3.0 s | 30 s | 5.0 min |",
        "| 40 to 100 ms | 7.0 s | 1.2 min | 12 min | - | - | - |",
    ]
    assert lines["real models"] == [
        "| quick | 9 | 2.0 | 0.25 | 1 of 2 | - | 0 of 2 | 1 of 1 | 0 of 1 | 1.5 |",
        "| slow | 9 | 60.0 | 0.25 | 1 of 1 | 0 of 1 | 1 of 2 | 0 of 1 | 1 of 1 | 8.0 |",
    ]
    assert lines["real variants"] == [
        "| quick | load of 5 % | 1 | +5.2 % | +5.2 % to +5.2 % | 1 of 1 | 0 of 1 | 0 of 1 |",
        "| slow | load of 5 % | 1 | +8.0 % | +8.0 % to +8.0 % | 0 of 1 | 1 of 1 | 0 of 1 |",
        "| slow | one block more | 1 | +4.7 % | +4.7 % to +4.7 % | 0 of 1 | 1 of 1 | 0 of 1 |",
    ]
