"""Two models judged by the parts that changed, on an engine with a clock of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pytest_modelperf.comparing.by_running import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import CaseComparison, How, Measure, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.command import run
from tests.support.simulated import simulate
from tests.support.small_models import parse

LAYERS = 12
# A product takes 100 µs and an activation 10.
WHOLE_US = LAYERS * 100 + LAYERS * 10
PLANNED = ("--plugin", "tests.support.faulty_plugin", "--engine", "planned", "--max-seconds", "30")


def stack(middle: str = "a = Relu (m)", *, last: str = "Relu") -> onnx.ModelProto:
    """Products with activations; `middle` makes `a` of `m` in the middle."""
    weights: dict[str, Any] = {"half": np.array(0.5, np.float32)}
    lines, source = [], "x"
    for layer in range(LAYERS):
        weights[f"w{layer}"] = np.full((8, 8), 0.1 + layer / 1000, np.float32)
        lines.append(f"m{layer} = MatMul ({source}, w{layer})")
        if layer == LAYERS // 2:
            lines.append(middle.replace("(m", f"(m{layer}").replace("a =", f"a{layer} ="))
        else:
            lines.append(f"a{layer} = {last if layer == LAYERS - 1 else 'Relu'} (m{layer})")
        source = f"a{layer}"
    text = " ".join(lines).replace(f"a{LAYERS - 1} =", "y =")
    return parse(f"g (float[2,8] x) => (float[2,8] y) {{ {text} }}", weights=weights)


def retrained(*middle: str) -> onnx.ModelProto:
    """The stack with another weight."""
    model = stack(*middle)
    weight = np.full((8, 8), 7.5, np.float32)
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(weight, "w0"))
    return model


DECOMPOSED = "p = Abs (m) q = Add (m, p) a = Mul (q, half)"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        simulate(patch)
        onnx.save(stack(), "base.onnx")
        yield path


def compared(after: onnx.ModelProto, *options: str, before: str = "base.onnx") -> dict[str, Any]:
    """The only case of a comparison."""
    onnx.save(after, "after.onnx")
    result = run("compare", *PLANNED, *options, before, "after.onnx", "--json", "-")
    (case,) = json.loads(result.out)["cases"]
    found: dict[str, Any] = case
    return found


def p50(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in case["metrics"] if m["name"] == "latency_p50")
    return found


def test_plans_are_compared_if_no_part_of_one_runs_by_itself() -> None:
    other = compared(stack(DECOMPOSED), "--engine-option", "whole=yes")
    same = compared(retrained(), "--engine-option", "whole=yes")
    assert (other["how"], same["how"]) == ("duet", "duet")
    assert not other["parts"]
    assert not any(note.startswith("same plan: ") for note in other["notes"])
    assert any(note.startswith("same plan: ") for note in same["notes"])


def test_a_small_change_has_a_small_interval() -> None:
    case = compared(stack(DECOMPOSED))
    added = 20 / WHOLE_US
    assert (case["how"], case["verdict"]) == ("parts", "passed")
    assert p50(case)["ratio"] == pytest.approx(1 + added, abs=0.002)
    low, high = p50(case)["interval"]
    assert 1.01 < low <= 1 + added <= high < 1.02
    (part,) = case["parts"]
    assert part["kernels"] == {"before": 1, "after": 3}
    assert part["change_ms"] == pytest.approx(0.020, abs=0.002)
    assert part["reasons"] == ["1 Relu became 3 kernels (Abs, Add, Mul)"]


def test_a_fifth_of_a_percent_can_be_the_tolerance() -> None:
    assert compared(stack(DECOMPOSED), "--tolerance", "0.002")["verdict"] == "regressed"
    assert compared(stack(DECOMPOSED), "--tolerance", "0.02")["verdict"] == "passed"


def test_the_reverse_of_a_change_is_an_improvement() -> None:
    onnx.save(stack(DECOMPOSED), "slower.onnx")
    case = compared(stack(), "--tolerance", "0.002", before="slower.onnx")
    assert (case["how"], case["verdict"]) == ("parts", "improved")
    assert p50(case)["ratio"] < 0.99


def test_two_changes_are_two_parts() -> None:
    case = compared(stack("a = Sigmoid (m)", last="Sigmoid"))
    assert case["how"] == "parts"
    assert [part["reasons"] for part in case["parts"]] == [["1 Relu became 1 Sigmoid"]] * 2


def test_a_whole_that_contradicts_its_parts_decides() -> None:
    other = stack("a = Sigmoid (m)")
    other.doc_string = "hides 300 us"
    case = compared(other)
    assert (case["how"], case["verdict"]) == ("duet", "regressed")
    assert p50(case)["ratio"] == pytest.approx(1 + 300 / WHOLE_US, abs=0.02)
    assert case["notes"][0].startswith("judged by the whole model, which changed by +2")


def test_a_part_that_does_not_load_leaves_the_verdict_to_the_whole() -> None:
    case = compared(stack("a = Tan (m)"))
    assert (case["how"], case["verdict"], case["parts"]) == ("duet", "passed", [])
    assert "there is no kernel for Tan by itself" in case["notes"][0]


def test_parts_that_are_most_of_a_model_leave_the_verdict_to_the_whole() -> None:
    layers = " ".join(f"s{k} = MatMul ({'m' if k == 0 else f's{k - 1}'}, w0)" for k in range(9))
    case = compared(stack(f"{layers} a = Relu (s8)"))
    assert (case["how"], case["verdict"], case["parts"]) == ("duet", "regressed", [])
    assert case["notes"][0].startswith(
        "judged by the whole model: the parts that changed, with their neighbours, take "
    )


def test_a_model_with_a_body_whose_plan_changed_is_judged_as_a_whole() -> None:
    """A change before a node with bodies can change how often these run."""
    scan = """a = Scan <num_scan_inputs = 1, body = b (float[8] row) => (float[8] now) {
        now = OP (row)
    }> (m)"""
    onnx.save(stack(scan.replace("OP", "Relu")), "scan.onnx")
    case = compared(stack(scan.replace("OP", "Exp")), before="scan.onnx")
    assert (case["how"], case["parts"]) == ("duet", [])
    same = compared(retrained(scan.replace("OP", "Relu")), before="scan.onnx")
    assert same["notes"][0].startswith("same plan: ")


def test_small_kernels_that_changed_everywhere_are_parts() -> None:
    """More than half of the kernels, and little of the time."""
    changed = stack("p = Neg (m) a = Neg (p)")
    for node in changed.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Sigmoid"
    case = compared(changed)
    assert case["how"] == "parts"
    texts = [reason for part in case["parts"] for reason in part["reasons"]]
    # Some products stay in as neighbours, and join what changed on both sides of them.
    assert texts.count("1 Relu became 1 Sigmoid") >= LAYERS / 2
    assert texts.count("1 Relu became 2 Neg") == 1


def test_the_same_plan_is_noted_and_the_duet_still_runs() -> None:
    case = compared(retrained())
    assert (case["how"], case["verdict"]) == ("duet", "passed")
    assert case["rounds"] >= 4
    assert case["notes"][0] == (
        f"same plan: the engine runs the same {2 * LAYERS} kernels on the same shapes"
    )


def settled(after: onnx.ModelProto, before: str = "base.onnx") -> CaseComparison:
    """The only case of a comparison that the same plan settles."""
    onnx.save(after, "after.onnx")
    extensions = load_extensions(["tests.support.faulty_plugin"])
    setup = Setup(engine=extensions.engines.find("planned"), policy=SamplingPolicy(max_seconds=30))
    old, new = Side(Path(before), setup), Side(Path("after.onnx"), setup)
    gate = Gate(measure=Measure.CHANGED)
    return compare_models(old, new, ProfileRequest(), gate, extensions).cases[0]


def test_the_same_plan_settles_a_case_if_both_sides_take_the_same_time() -> None:
    case = settled(retrained())
    assert (case.how, case.verdict) == (How.PLAN, Verdict.PASSED)


def test_the_same_plan_settles_nothing_if_the_model_takes_longer() -> None:
    slower = retrained()
    slower.doc_string = "hides 900 us"
    case = settled(slower)
    assert (case.how, case.verdict) == (How.DUET, Verdict.REGRESSED)
    assert re.fullmatch(
        r"the plan is the same, but the model took \d+ % longer than before: compared as a duet",
        case.notes[0],
    )
    assert case.notes[1].startswith("same plan: ")


def test_a_model_that_is_faster_than_before_is_settled_by_its_plan() -> None:
    slower = stack()
    slower.doc_string = "hides 900 us"
    onnx.save(slower, "slower.onnx")
    assert settled(retrained(), "slower.onnx").how is How.PLAN


def change_of(case: dict[str, Any], op_type: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        change
        for change in case["layer_types"]
        if op_type in {(change[side] or {}).get("op_type") for side in ("before", "after")}
    )
    return found


def test_a_part_is_the_reason_with_its_own_figure() -> None:
    case = compared(stack(DECOMPOSED))
    assert case["reasons"][0].startswith("1 Relu became Abs, Add and Mul (first: p): ")
    assert re.search(r": \+0\.0[12]\d ms \(.*\), measured in place$", case["reasons"][0])
    assert not any("MatMul" in reason for reason in case["reasons"])


def test_a_kernel_that_both_plans_have_has_not_changed() -> None:
    case = compared(stack(DECOMPOSED))
    product = change_of(case, "MatMul")
    assert (product["change_ms"], product["change_interval_ms"]) == (0, [0, 0])
    assert product["before"]["ms"] == product["after"]["ms"] > 0
    first, second, third = (layer["after"]["op_type"] for layer in case["layers"][:3])
    assert {first, second, third} == {"Abs", "Add", "Mul"}


def test_rows_sum_to_what_was_judged_and_the_figures_shown_are_its_pair() -> None:
    case = compared(stack(DECOMPOSED))
    judged = p50(case)
    assert judged["after"] / judged["before"] == pytest.approx(judged["ratio"])
    changed = judged["after"] - judged["before"]
    for rows in (case["layer_types"], case["layers"]):
        assert sum(row["change_ms"] or 0 for row in rows) == pytest.approx(changed, abs=1e-4)
        for side in ("before", "after"):
            spent = sum((row[side] or {}).get("ms") or 0 for row in rows)
            assert spent == pytest.approx(judged[side], abs=1e-4)


def test_a_change_that_was_undone_explains_the_improvement() -> None:
    onnx.save(stack(DECOMPOSED), "slower.onnx")
    case = compared(stack(), before="slower.onnx")
    assert case["reasons"][0].startswith("Abs, Add and Mul became Relu (first: ")
    assert change_of(case, "Add")["change_ms"] < 0


def test_a_change_of_the_whole_beyond_its_parts_is_elsewhere() -> None:
    other = stack("a = Sigmoid (m)")
    other.doc_string = "hides 300 us"
    case = compared(other)
    (reason,) = [reason for reason in case["reasons"] if reason.startswith("elsewhere")]
    assert re.fullmatch(
        r"elsewhere, in kernels that both plans have: \+0\.(29|30)\d ms \(.*\), by the whole model",
        reason,
    )
    assert change_of(case, "elsewhere")["change_ms"] == pytest.approx(0.3, abs=0.05)
    assert case["elsewhere"]["change_ms"] == pytest.approx(0.3, abs=0.05)


def test_two_parts_of_one_change_are_one_reason() -> None:
    case = compared(stack("a = Sigmoid (m)", last="Sigmoid"))
    (reason,) = [each for each in case["reasons"] if "measured in place" in each or "noise" in each]
    assert reason.startswith("2 Relu became Sigmoid (first: ")


def test_an_output_that_was_added_belongs_to_its_part() -> None:
    changed = stack(DECOMPOSED)
    changed.graph.output.append(onnx.ValueInfoProto(name="q"))
    case = compared(changed)
    (reason,) = [each for each in case["reasons"] if "measured in place" in each]
    assert "; 1 output added (first: q): " in reason
    assert not any(each.startswith("1 output added") for each in case["reasons"])
