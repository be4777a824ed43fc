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
from loads import QUIET, TAKEN
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from real import Bench, next_rows, plan_comparisons
from real_results import (
    LOAD_5,
    UNCHANGED,
    Compared,
    RealModel,
    Reference,
    Setting,
    expectations,
    tables,
)
from real_variants import LOAD_DEPTH, LOAD_NAME, LOAD_WIDTH, Cost, add_load, repeat_block
from results import Result, Rows
from verdicts import chain

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.graph.twin import left_out, read_twin
from tests.support.benchmark_results import result_of as made_result

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


def test_a_block_of_the_wanted_size_is_repeated() -> None:
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
def test_a_load_is_found_in_a_few_trials(overhead: float) -> None:
    """The time of a load grows with its rows, above a fixed overhead."""
    rows, wanted = 700, real.LOAD_SHARE
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


def reference(model: str, ratio: float) -> Reference:
    return Reference(model, 1, LOAD_5, 7, ratio, ratio, ratio, 9, 2.0)


def test_models_and_changes_take_turns() -> None:
    references = [reference(model, 1.05) for model in ("a", "b")]
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


@pytest.mark.parametrize(("models", "cores", "is_quiet"), [(20, [1, 2], False), (3, [1], True)])
def test_unchanged_comparisons_are_enough_for_a_rate(
    models: int,
    cores: list[int],
    is_quiet: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    names = [str(number) for number in range(models)]
    options = argparse.Namespace(repetitions=0, models=names, cores=cores, quiet=is_quiet)
    places = models * len(cores) * (1 if is_quiet else 2)
    assert 400 <= real.repetitions_of(options) * places < 400 + places


class FakeBench(Bench):
    """A bench whose comparisons all pass without a measurement, up to a number of them."""

    left = 1

    def compare(self, setting: Setting) -> Compared:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return compared(setting)


def compared(setting: Setting, verdict: str = "passed", seconds: float = 1.0) -> Compared:
    place = (setting.machine, setting.cores, setting.model, setting.change)
    return Compared(*place, verdict, verdict, verdict, seconds, 9, 1.0, 0.99, 1.01)


def test_a_run_goes_on_where_it_stopped_and_makes_no_comparison_twice(tmp_path: Path) -> None:
    plan = [Setting(QUIET, 1, model, UNCHANGED) for model in ("a", "b", "a")]
    bench = FakeBench(tmp_path, Gate())
    with pytest.raises(KeyboardInterrupt):
        bench.run(plan)
    assert [each.setting for each in bench.comparisons()] == plan[:1]
    bench.left = 2
    assert Counter(each.setting for each in bench.run(plan)) == Counter(plan)
    assert len(bench.comparisons()) == 3
    bench.left = 1
    other = Setting(QUIET, 1, "c", UNCHANGED)
    assert [each.setting for each in bench.run([other])] == [other]


# -- what is made of it


def result_of(
    comparisons: list[Compared], references: list[Reference], models: dict[str, float]
) -> Result:
    rows: Rows = {
        "models": [asdict(RealModel(name, 9, ms, 0.25)) for name, ms in models.items()],
        "references": [asdict(each) for each in references],
        "comparisons": [asdict(each) for each in comparisons],
    }
    return made_result("real", rows)


REFERENCES = [reference("quick", 1.052), reference("slow", 1.08), reference("third", 1.047)]
COMPARED = [
    compared(Setting(QUIET, 1, "quick", UNCHANGED), "passed", 1.0),
    compared(Setting(QUIET, 1, "quick", UNCHANGED), "inconclusive", 2.0),
    compared(Setting(QUIET, 1, "slow", UNCHANGED), "passed", 7.0),
    compared(Setting(TAKEN, 1, "slow", UNCHANGED), "regressed", 9.0),
    compared(Setting(QUIET, 1, "quick", LOAD_5), "regressed", 3.0),
    compared(Setting(QUIET, 1, "slow", LOAD_5), "passed", 3.0),
    compared(Setting(TAKEN, 1, "third", LOAD_5), "passed", 4.0),
]
RESULT = result_of(COMPARED, REFERENCES, {"slow": 60.0, "quick": 2.0})


def test_a_slowdown_of_5_percent_is_found_by_its_reference_alone() -> None:
    """The load of `slow` takes 8 % and does not count."""
    outcomes = {each.what: (each.found, each.outcome) for each in expectations(RESULT)}
    assert outcomes == {
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
def test_a_reference_counts_if_it_is_near_5_percent_and_known(
    ratio: float,
    width: float,
    counts: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    made = Reference("a", 1, LOAD_5, 7, ratio, ratio - width / 2, ratio + width / 2 - 1e-9, 9, 2.0)
    assert made.is_5_slower is counts


def test_a_reference_of_one_round_is_not_known() -> None:
    assert not Reference("a", 1, LOAD_5, 7, 1.05, None, None, 1, 2.0).is_5_slower


def test_the_tables_have_a_line_for_each_place_and_size() -> None:
    lines = {name: table.splitlines()[2:] for name, table in tables(RESULT).items()}
    assert lines["real"] == [
        "| as it is | 1 | 2 of 3 | 0 of 3 | 1 of 3 | 2.0 | 1 of 1 | 0 of 1 | 0 of 1 | 3.0 |",
        "| 40 % taken | 1 | 0 of 1 | 1 of 1 | 0 of 1 | 9.0 | 0 of 1 | 1 of 1 | 0 of 1 | 4.0 |",
    ]
    assert lines["real cost"][:-2] == [
        "| up to 10 ms | 1.5 s | 15 s | 2.5 min | 3.0 s | 30 s | 5.0 min |",
        "| 40 to 100 ms | 7.0 s | 1.2 min | 12 min | - | - | - |",
    ]
