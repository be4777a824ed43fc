"""The size of a model on disk: what is judged, by how much it may grow, and where it is known."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.baselines.document import store_case
from pytest_modelperf.baselines.records import ModelBaseline
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.by_counts import compare_with_baseline, judge_size, with_size
from pytest_modelperf.comparing.figures import format_allowed, format_change
from pytest_modelperf.comparing.limits import LEAST_SIZE_BYTES, Tolerances, read_tolerances
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.records import Case, Profile, StoredInputs
from pytest_modelperf.profiler.request import ProfileRequest, profile_both, profile_model
from pytest_modelperf.report.page import TextStyle
from tests.support.facts import make_provenance
from tests.support.rendered import render_comparison, render_comparison_csv
from tests.support.small_models import ones, parse, save_beside

MIB = 1 << 20
USUAL = Tolerances()
SIZES = st.integers(min_value=1, max_value=1 << 40)
OPPOSITE = {
    Verdict.PASSED: Verdict.PASSED,
    Verdict.IMPROVED: Verdict.REGRESSED,
    Verdict.REGRESSED: Verdict.IMPROVED,
}


def named(share: object) -> Tolerances:
    return read_tolerances({"size": share}, "here")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (100 * MIB, 105 * MIB, Verdict.PASSED),
        (100 * MIB, 105 * MIB + 1, Verdict.REGRESSED),
        (105 * MIB, 100 * MIB, Verdict.PASSED),
        (105 * MIB + 1, 100 * MIB, Verdict.IMPROVED),
        (1000, 1000 + MIB, Verdict.PASSED),
        (1000, 1001 + MIB, Verdict.REGRESSED),
        (1001 + MIB, 1000, Verdict.IMPROVED),
    ],
)
def test_five_per_cent_and_one_mebibyte_more_are_allowed(
    before: int, after: int, verdict: Verdict
) -> None:
    assert judge_size(before, after, USUAL).verdict is verdict


def test_a_tolerance_that_names_the_size_is_all_that_is_allowed() -> None:
    assert judge_size(1000, 1001, named(0)).verdict is Verdict.REGRESSED
    assert judge_size(1000, 1010, named("1 %")).verdict is Verdict.PASSED
    assert judge_size(1000, 1011, named("1 %")).verdict is Verdict.REGRESSED
    assert judge_size(10**15, 10**18, named("1e308 %")).verdict is Verdict.PASSED
    # A tolerance of something else leaves the size its default.
    assert judge_size(1000, 1001, read_tolerances(0.0, "here")).verdict is Verdict.PASSED


@pytest.mark.parametrize("percent", range(100))
def test_a_growth_by_exactly_the_tolerance_is_allowed(percent: int) -> None:
    """A product of floats can be less: 0.29 x 100 is."""
    tolerances = named(f"{percent} %")
    assert judge_size(100, 100 + percent, tolerances).verdict is Verdict.PASSED
    assert judge_size(100 + percent, 100, tolerances).verdict is Verdict.PASSED
    assert judge_size(100, 101 + percent, tolerances).verdict is Verdict.REGRESSED


@given(SIZES, SIZES, st.sampled_from([USUAL, named(0), named(0.2)]))
def test_one_way_is_worse_if_the_other_is_better(
    before: int, after: int, tolerances: Tolerances
) -> None:
    there = judge_size(before, after, tolerances).verdict
    assert judge_size(after, before, tolerances).verdict is OPPOSITE[there]


@given(SIZES, SIZES, SIZES)
def test_a_larger_model_is_never_judged_better(before: int, after: int, more: int) -> None:
    order = [Verdict.IMPROVED, Verdict.PASSED, Verdict.REGRESSED]
    smaller = judge_size(before, after, USUAL).verdict
    assert order.index(judge_size(before, after + more, USUAL).verdict) >= order.index(smaller)


def test_the_allowance_is_shown_in_the_unit_that_decides() -> None:
    shown = [format_allowed(judge_size(before, before, USUAL)) for before in (1000, 100 * MIB)]
    assert [*shown, format_allowed(judge_size(1000, 1000, named(0.02)))] == [
        "+1 MiB",
        "+5 %",
        "+2 %",
    ]
    assert format_change(judge_size(100 * MIB, 100 * MIB + 2048, USUAL)) == "+2.000 KiB"


MODEL = "g (float[1,8] x) => (float[1,8] y) { y = MatMul(x, w) }"


def write_model(path: Path, padding: int = 0) -> Path:
    """Write a model with external weights; `padding` bytes of these belong to no weight."""
    path.parent.mkdir(exist_ok=True)
    weights = save_beside(parse(MODEL, weights={"w": ones(8, 8)}), path)
    with weights.open("ab") as file:
        file.truncate(weights.stat().st_size + padding)
    return path


def sizes_of(comparison: Comparison) -> list[Metric]:
    return [m for case in comparison.cases for m in case.metrics if m.name == "size_bytes"]


def compared(before: Path, after: Path, tolerances: Tolerances = USUAL) -> Comparison:
    return compare_profiles(
        *profile_both(before, after, ProfileRequest(), Extensions().operators), tolerances
    )


def test_external_data_counts_if_the_file_of_the_graph_is_the_same(tmp_path: Path) -> None:
    old, new = (
        write_model(tmp_path / "a" / "m.onnx"),
        write_model(tmp_path / "b" / "m.onnx", 2 * MIB),
    )
    assert old.read_bytes() == new.read_bytes()
    (metric,) = sizes_of(compared(old, new))
    assert (metric.before, metric.after) == (
        old.stat().st_size + 256,
        old.stat().st_size + 256 + 2 * MIB,
    )
    assert open_model(new).total_bytes == metric.after
    assert metric.verdict is compared(old, new).verdict is Verdict.REGRESSED
    assert compared(new, old).verdict is Verdict.IMPROVED
    assert compared(old, new, named("100000 %")).verdict is Verdict.REGRESSED
    assert compared(old, new, named("9999999 %")).verdict is Verdict.PASSED


def test_a_larger_size_is_in_the_sentences_and_the_tables(tmp_path: Path) -> None:
    old, new = (
        write_model(tmp_path / "a" / "m.onnx"),
        write_model(tmp_path / "b" / "m.onnx", 2 * MIB),
    )
    found = compared(old, new)
    text = render_comparison(found, TextStyle(100), COMMAND_WORDING)
    (line,) = [line for line in text.splitlines() if line.startswith("file size")]
    assert line.split()[-3:] == ["+1", "MiB", "regressed"]
    (row,) = [line for line in render_comparison_csv(found).splitlines() if "size_bytes" in line]
    assert row.endswith("regressed,True")


def test_without_its_external_data_a_model_has_no_size_and_a_note_if_one_was_asked_for(
    tmp_path: Path,
) -> None:
    old, new = write_model(tmp_path / "a" / "m.onnx"), write_model(tmp_path / "b" / "m.onnx")
    (new.parent / "weights").unlink()
    assert not sizes_of(compared(old, new))
    assert not any(case.notes for case in compared(old, new).cases)
    (case,) = compared(old, new, named(0.1)).cases
    assert case.notes == ("the file size is not judged: a file of external data is missing",)
    (case,) = compared(new, old, named(0.1)).cases
    assert "before is not known" in case.notes[0]


def recorded(profile: Profile) -> ModelBaseline:
    (case,) = profile.cases
    stored = store_case(case, profile.model, make_provenance(date=dt.date(2026, 1, 31)), "0" * 32)
    return ModelBaseline(model=profile.model, cases=(stored,))


def against_baseline(
    stored: ModelBaseline, now: Profile, tolerances: Tolerances = USUAL
) -> CaseComparison:
    (case,) = compare_with_baseline(
        stored, now, StoredInputs(specs={}, sha256=None), tolerances
    ).cases
    return case


def test_a_baseline_judges_the_size_that_it_stored(tmp_path: Path) -> None:
    old, new = (
        profile_model(write_model(tmp_path / name / "m.onnx", padding), ProfileRequest())
        for name, padding in (("a", 0), ("b", 2 * MIB))
    )
    stored = recorded(old)
    case = against_baseline(stored, new)
    assert case.verdict is Verdict.REGRESSED
    assert [metric.name for metric in case.regressed] == ["size_bytes"]
    assert against_baseline(stored, old).verdict is Verdict.PASSED


def test_an_older_baseline_gives_no_verdict_on_the_size(tmp_path: Path) -> None:
    old, new = (
        profile_model(write_model(tmp_path / name / "m.onnx", padding), ProfileRequest())
        for name, padding in (("a", 0), ("b", 2 * MIB))
    )
    stored = recorded(old)
    older = replace(stored, model=replace(stored.model, total_bytes=None))
    case = against_baseline(older, new)
    assert (case.verdict, case.notes) == (Verdict.PASSED, ())
    assert "size_bytes" not in {metric.name for metric in case.metrics}
    noted = against_baseline(older, new, named(0.1))
    assert noted.verdict is Verdict.PASSED
    assert "record it again" in noted.notes[0]


def test_a_case_without_a_previous_one_gets_no_size() -> None:
    new = CaseComparison(Case(1, 1), (), (), outcome=Verdict.NEW)
    assert with_size(new, None, LEAST_SIZE_BYTES, named(0.1)) == new
