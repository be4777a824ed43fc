"""The benchmark sees whether the first reason names the change, and whether figures sum to it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import onnx
import pytest
from kept import keep_row
from loads import BUSY, QUIET
from results import Result
from why import (
    Told,
    asked_for,
    expectations,
    is_form_of,
    read_reasons,
    tables,
    words_of_change,
)

from tests.docs.test_evidence import result_of
from tests.support.small_models import parse

PART = "1 Relu became 3 kernels (Abs, Add, Mul): +0.020 ms (+0.019 … +0.021 ms), measured in place"
SMALL = "1 Neg added: 0.001 ms (-0.002 … +0.003 ms), within the noise"


def case(*reasons: str, how: str = "parts") -> dict[str, Any]:
    p50 = {"name": "latency_p50", "before": 2.0, "after": 2.02, "interval": [1.009, 1.011]}
    return {"how": how, "reasons": list(reasons), "metrics": [p50]}


def test_a_first_reason_names_what_was_changed() -> None:
    assert read_reasons(case(PART), frozenset({"Abs"})).is_first
    assert not read_reasons(
        case("the runtime itself takes 2x as long"), frozenset({"Abs"})
    ).is_first
    assert not read_reasons(case(), frozenset({"Abs"})).is_first


@pytest.mark.parametrize(
    ("reasons", "is_sum"),
    [((PART,), True), ((PART, SMALL), True), ((PART, PART), False), ((), False)],
)
def test_the_figures_of_parts_sum_to_what_was_judged(
    reasons: tuple[str, ...],
    is_sum: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    assert read_reasons(case(*reasons), frozenset()).is_sum is is_sum


def test_a_figure_of_a_profiled_layer_is_foreign_if_parts_judged() -> None:
    profiled = "Conv: the same 3 layers take 1.1x as long: +1.2 ms, 20 %"
    assert read_reasons(case(PART, profiled), frozenset({"Abs"})).foreign == 1
    found = read_reasons(case(profiled, how="duet"), frozenset({"Conv"}))
    assert found == Told("duet", profiled, is_first=True, is_sum=None, foreign=0)


def model(text: str) -> onnx.ModelProto:
    return parse(f"g (float[1,4] x) => ({text} }}")


def test_the_words_of_a_change_are_the_operators_that_differ() -> None:
    before = model("float[1,4] y) { a = Abs (x) y = Relu (a)")
    after = model("float[1,4] y) { a = Abs (x) b = Neg (a) y = Neg (b)")
    assert words_of_change(before, after) == {"Relu", "Neg"}
    more = model("float[1,4] y, float[1,4] a) { a = Abs (x) y = Relu (a)")
    assert words_of_change(before, more) == {"output", "Reorder"}


def result(*layers: tuple[str, str, float]) -> Result:
    rows = [{"load": load, "model": "m", "id": key, "ms": ms} for load, key, ms in layers]
    return result_of({"comparisons": [], "layers": rows}, "why")


def test_larger_layers_agree_within_a_limit() -> None:
    found = result(
        ("quiet", "a", 1.0), ("quiet", "b", 1.0), ("quiet", "tiny", 0.01),
        ("both busy", "a", 1.1), ("both busy", "b", 1.3), ("both busy", "tiny", 9.0),
    )  # fmt: skip
    *_, agreeing, _ = expectations(found)
    assert (agreeing.found, agreeing.is_met) == ("1 of 2", False)


@pytest.mark.parametrize(
    ("kernel", "is_form"),
    [
        ("gelu", True), ("gelu_quant", True), ("gelu/MatMulAddFusion_MatMul_quant", True),
        ("gelu_1", False), ("gelu_1_quant", False), ("gelus", False), ("other", False),
    ],
)  # fmt: skip
def test_a_kernel_is_a_form_of_the_layer_whose_name_it_continues(
    kernel: str, *, is_form: bool
) -> None:
    assert is_form_of(kernel, "gelu") is is_form


def test_a_quantized_layer_agrees_with_the_engine_within_a_limit() -> None:
    layers = (("a", 1.0, 1.1), ("b", 1.0, 1.3), ("tiny", 0.01, 9.0))
    rows = [{"model": "m", "id": key, "own_ms": own, "ms": ms} for key, own, ms in layers]
    found = result_of({"comparisons": [], "layers": [], "quantized": rows}, "why")
    *_, agreeing = expectations(found)
    assert (agreeing.found, agreeing.is_met) == ("1 of 2", False)
    assert "| m | - | 1 of 2 |" in tables(found)["why layers"]


def test_rows_of_earlier_runs_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    """The command that is stored with the rows has to name what they describe."""
    for model, load, change in (
        ("a", QUIET, "x"),
        ("b", QUIET, "x"),
        ("a", BUSY, "x"),
        ("a", QUIET, "y"),
    ):
        keep_row(tmp_path, "comparisons", {"model": model, "load": load, "change": change})
    keep_row(tmp_path, "layers", {"model": "a", "load": QUIET})
    options = Namespace(models=["a"], loads=[QUIET], changes=["x"])
    (row,) = asked_for(tmp_path, "comparisons", options)
    assert (row["model"], row["load"], row["change"]) == ("a", QUIET, "x")
    assert len(asked_for(tmp_path, "layers", options)) == 1
