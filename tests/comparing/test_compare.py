"""Comparisons as laws over records: what is worse, what is unclear, and what explains it."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.baselines.document import store_case
from pytest_modelperf.comparing.by_counts import SideCounts, compare_with_stored
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict, worst
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile, Uncounted
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile, Profile
from tests.support.facts import make_model, make_provenance

CASE = Case(1, 1)
MACHINE = MachineFacts(system="Linux", architecture="x86_64", usable_cores=2)
OPPOSITE = {
    Verdict.PASSED: Verdict.PASSED,
    Verdict.IMPROVED: Verdict.REGRESSED,
    Verdict.REGRESSED: Verdict.IMPROVED,
    Verdict.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}


def layer(op: str = "Conv", macs: int | None = 100, **figures: int | None) -> StaticLayer:
    known = StaticLayer(
        id=op,
        name=op,
        op_type=op,
        domain="",
        weight=None,
        precision="float32",
        macs=macs,
        elementwise_ops=10,
        backward_macs=macs,
        params=0,
        weight_bytes=0,
        output_bytes=40,
        input_shape=(1,),
        output_shape=(1,),
    )
    return replace(known, **figures)


def static(
    *layers: StaticLayer, params: int = 7, peak: int | None = 64, uncounted: int = 0
) -> StaticProfile:
    missing = (Uncounted("Blend", "my.ops", uncounted, "no rule"),) if uncounted else ()
    return StaticProfile(layers or (layer(),), params, 4 * params, peak, missing)


def profile(*statics: StaticProfile, name: str = "m.onnx", batch: int = 1) -> Profile:
    cases = tuple(CaseProfile(Case(batch * 2**i, 1), s) for i, s in enumerate(statics))
    return Profile(make_model(name, name, None, 100), cases, MACHINE)


def compared(before: StaticProfile, after: StaticProfile) -> CaseComparison:
    (case,) = compare_profiles(profile(before), profile(after)).cases
    return case


def metric(case: CaseComparison, name: str) -> Metric:
    return next(m for m in case.metrics if m.name == name)


def test_equal_profiles_pass_and_nothing_explains_it() -> None:
    case = compared(static(), static())
    assert case.verdict is Verdict.PASSED
    assert {m.verdict for m in case.metrics} == {Verdict.PASSED}
    assert case.reasons == ()
    assert all(change.is_equal for change in case.layer_types)


@pytest.mark.parametrize(
    ("after", "verdict"), [(99, "improved"), (100, "passed"), (101, "regressed")]
)
def test_one_mac_more_is_a_regression(after: int, verdict: str) -> None:
    case = compared(static(layer(macs=100)), static(layer(macs=after)))
    assert case.verdict.value == metric(case, "macs").verdict.value == verdict
    assert metric(case, "macs").ratio == after / 100


def test_params_are_judged_too_and_one_that_is_worse_decides() -> None:
    case = compared(static(layer(macs=100), params=7), static(layer(macs=50), params=8))
    assert metric(case, "macs").verdict is Verdict.IMPROVED
    assert metric(case, "params").verdict is Verdict.REGRESSED
    assert case.verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("elementwise_ops", static(layer(elementwise_ops=999))),
        ("activation_bytes", static(layer(output_bytes=999))),
        ("peak_activation_bytes", static(peak=999)),
        ("weight_bytes", replace(static(), weight_bytes=999)),
    ],
)
def test_other_figures_are_shown_and_decide_nothing(name: str, after: StaticProfile) -> None:
    case = compared(static(), after)
    shown = metric(case, name)
    assert (shown.after, shown.gated, shown.verdict) == (999, False, Verdict.REGRESSED)
    assert case.verdict is Verdict.PASSED


@pytest.mark.parametrize("side", ["before", "after"])
def test_macs_that_are_lower_bounds_decide_nothing_with_a_note_why(side: str) -> None:
    exact, bound = static(layer(), layer("Relu", 0)), static(layer(), layer("Relu", 0), uncounted=1)
    case = compared(bound, exact) if side == "before" else compared(exact, bound)
    assert metric(case, "macs").verdict is Verdict.INCONCLUSIVE
    assert metric(case, "elementwise_ops").verdict is Verdict.INCONCLUSIVE
    assert metric(case, "params").verdict is Verdict.PASSED
    assert case.verdict is Verdict.INCONCLUSIVE
    assert case.reasons == ("MACs are lower bounds: my.ops::Blend could not be counted",)


def ran(alone: StaticProfile, macs: int, chance: str | None = None) -> StaticProfile:
    """A profile that a run completed: the graph alone gives fewer figures, or bounds of them."""
    return replace(static(layer(macs=macs)), graph_alone=alone, chance=chance)


# What the graph alone shows: not which branch runs, nor the shapes of one of the layers.
BRANCHES, OPEN = replace(static(layer(macs=400)), undecided=1), static(layer(macs=50), uncounted=1)
MORE_BRANCHES = replace(BRANCHES, layers=(layer(macs=500),))
MORE_OPEN = static(layer(macs=60), uncounted=1)
COUNTED_ALIKE = {
    "the branch of one run": (ran(BRANCHES, 100), BRANCHES, Verdict.PASSED, (400, 400)),
    "the same branch": (ran(BRANCHES, 100), ran(BRANCHES, 100), Verdict.PASSED, (400, 400)),
    "another branch": (ran(BRANCHES, 100), ran(BRANCHES, 400), Verdict.INCONCLUSIVE, (100, 400)),
    "more in a branch": (ran(BRANCHES, 100), MORE_BRANCHES, Verdict.REGRESSED, (400, 500)),
    "more in the other branch": (
        ran(BRANCHES, 100),
        ran(MORE_BRANCHES, 100),
        Verdict.REGRESSED,
        (400, 500),
    ),
    "shapes of one run": (ran(OPEN, 100), OPEN, Verdict.INCONCLUSIVE, (50, 50)),
    "the same shapes": (ran(OPEN, 100), ran(OPEN, 100), Verdict.PASSED, (100, 100)),
    "shapes by other values": (ran(OPEN, 100), ran(OPEN, 110), Verdict.INCONCLUSIVE, (100, 110)),
    "more layers": (ran(OPEN, 100), ran(MORE_OPEN, 110), Verdict.REGRESSED, (100, 110)),
    "shapes by chance": (
        ran(OPEN, 100, "RandomUniform"),
        ran(OPEN, 100, "RandomUniform"),
        Verdict.INCONCLUSIVE,
        (50, 50),
    ),
    "branches by chance": (
        ran(BRANCHES, 100, "RandomUniform"),
        ran(BRANCHES, 400, "RandomUniform"),
        Verdict.PASSED,
        (400, 400),
    ),
}


@pytest.mark.parametrize(
    ("before", "after", "verdict", "shown"), COUNTED_ALIKE.values(), ids=COUNTED_ALIKE
)
def test_counts_completed_by_runs_are_compared_with_each_other(
    before: StaticProfile, after: StaticProfile, verdict: Verdict, shown: tuple[int, int]
) -> None:
    found = metric(compared(before, after), "macs")
    assert (found.verdict, (found.before, found.after)) == (verdict, shown)
    back = metric(compared(after, before), "macs")
    assert (back.verdict, back.after) == (OPPOSITE[verdict], shown[0])


def stored(static: StaticProfile) -> SideCounts:
    facts = make_model("m.onnx", None, "a" * 64, 100)
    origin = make_provenance(dt.date(2026, 1, 31))
    case = store_case(CaseProfile(CASE, static), facts, origin, "0" * 32)
    return SideCounts(case.static, case.observed)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "shown"), COUNTED_ALIKE.values(), ids=COUNTED_ALIKE
)
def test_a_baseline_keeps_both_counts(
    before: StaticProfile, after: StaticProfile, verdict: Verdict, shown: tuple[int, int]
) -> None:
    found = metric(compare_with_stored(CASE, stored(before), after), "macs")
    assert (found.verdict, (found.before, found.after)) == (verdict, shown)


def test_facts_from_a_run_of_the_very_same_model_hold_without_a_run() -> None:
    known = stored(ran(OPEN, 100))
    open_case = compare_with_stored(CASE, known, OPEN)
    assert open_case.verdict is Verdict.INCONCLUSIVE
    assert open_case.reasons == ("MACs are lower bounds: my.ops::Blend could not be counted",)
    assert compare_with_stored(CASE, known, OPEN, is_same=True).verdict is Verdict.PASSED


def test_values_are_named_if_they_make_the_difference() -> None:
    case = compared(ran(BRANCHES, 100), ran(BRANCHES, 400))
    assert case.reasons[-1].endswith("values decide a branch, a trip count or a shape")


def test_a_size_that_is_unknown_on_one_side_is_unclear_and_never_zero() -> None:
    peak = metric(compared(static(peak=64), static(peak=None)), "peak_activation_bytes")
    assert (peak.after, peak.ratio, peak.verdict) == (None, None, Verdict.INCONCLUSIVE)


def test_something_from_nothing_has_no_ratio_and_is_worse() -> None:
    params = metric(compared(static(params=0), static(params=5)), "params")
    assert (params.ratio, params.verdict) == (None, Verdict.REGRESSED)


@pytest.mark.parametrize(
    ("params", "scalars", "verdict", "gated"),
    [
        ((7, 8), (0, 1), "passed", False),
        ((8, 7), (1, 0), "passed", False),
        # The tensor that differs has more than a single value.
        ((7, 9), (0, 1), "regressed", True),
        ((7, 8), (0, 0), "regressed", True),
        ((8, 7), (0, 0), "improved", True),
        # A stored profile does not say how many they are.
        ((7, 8), (None, 1), "regressed", True),
        ((7, 7), (0, 1), "passed", True),
    ],
)
def test_tensors_of_a_single_value_that_alone_differ_are_shown_and_not_judged(
    params: tuple[int, int], scalars: tuple[int | None, int | None], verdict: str, *, gated: bool
) -> None:
    """An exporter that writes a LayerNorm in parts stores its epsilon."""
    before, after = (
        replace(static(params=count), scalar_params=few)
        for count, few in zip(params, scalars, strict=True)
    )
    case = compared(before, after)
    found = metric(case, "params")
    assert (found.before, found.after, found.gated) == (*params, gated)
    assert case.verdict.value == verdict


@pytest.mark.parametrize(
    ("after", "allowed", "verdict"),
    [
        (101, 0.01, "passed"),
        (102, 0.01, "regressed"),
        (100, 0.01, "passed"),
        (99, 0.01, "improved"),
        (98, 0.03, "passed"),
        # In floats, 0.29 * 100 is less than 29.
        (129, 0.29, "passed"),
        (130, 0.29, "regressed"),
        (2**60 + 1, 0.0, "regressed"),
    ],
)
def test_counts_have_a_tolerance_if_one_is_given(after: int, allowed: float, verdict: str) -> None:
    before = 2**60 if after > 2**59 else 100
    tolerances = Tolerances(counts=(("macs", allowed),))
    pair = profile(static(layer(macs=before))), profile(static(layer(macs=after)))
    (case,) = compare_profiles(*pair, tolerances).cases
    found = metric(case, "macs")
    assert (found.verdict.value, found.allowed) == (verdict, allowed)
    assert metric(case, "params").allowed == 0.0


def test_a_verdict_is_printed_as_the_word_that_it_equals() -> None:
    assert str(Verdict.OVER_BUDGET) == f"{Verdict.OVER_BUDGET}" == "over budget"
    assert str(How.PARTS) == f"{How.PARTS}" == "parts"


def test_the_worst_case_is_the_verdict_of_the_run() -> None:
    better, same, more = (static(layer(macs=n)) for n in (50, 100, 150))
    result = compare_profiles(profile(same, same, same), profile(better, same, more))
    assert [case.verdict.value for case in result.cases] == ["improved", "passed", "regressed"]
    assert [case.id for case in result.cases] == ["b1-c1", "b2-c1", "b4-c1"]
    assert result.verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "passed"),
        (["passed", "improved"], "improved"),
        (["improved", "inconclusive"], "inconclusive"),
        (["inconclusive", "regressed", "passed"], "regressed"),
    ],
)
def test_the_worst_of_several_verdicts(verdicts: list[str], expected: str) -> None:
    assert worst(Verdict(v) for v in verdicts) is Verdict(expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (profile(static()), profile(static(), batch=2, name="n.onnx")),
        (profile(static()), profile(static(), static(), name="n.onnx")),
        (profile(static(), static()), profile(static(), name="n.onnx")),
        (profile(static()), profile(name="n.onnx")),
    ],
)
def test_profiles_of_different_cases_are_refused(before: Profile, after: Profile) -> None:
    with pytest.raises(UsageError) as caught:
        compare_profiles(before, after)
    message = str(caught.value)
    for side in (before, after):
        assert side.model.name in message
        assert all(case.case.id in message for case in side.cases)
    assert "Give both the same with the batch size" in message


def test_a_layer_whose_weight_got_scales_is_of_no_other_size() -> None:
    case = compared(static(layer(params=448)), static(layer(params=496)))
    assert case.reasons == ("1 of 1 Conv with other params (first: Conv, 448 -> 496 params)",)


def test_reasons_list_what_was_added_removed_and_changed() -> None:
    before = static(
        layer("Conv", 100), layer("Conv", 100), layer("Relu", 0), layer("Gemm", 10), layer("Add", 0)
    )
    after = static(
        layer("Conv", 100), layer("Gemm", 30), layer("Exp", 0), layer("Add", 0), layer("Add", 0)
    )
    assert compared(before, after).reasons == (
        "1 of 1 Gemm of another size (first: Gemm, 10 -> 30 MACs): +20 MACs",
        "1 Relu removed, none left (first: Relu)",
        "1 Exp added (first: Exp)",
        "Add: 1 before, 2 now (first: Add)",
        "Conv: 2 before, 1 now (first: Conv): -100 MACs",
    )


def test_counts_that_grew_have_the_change_that_added_most_of_them() -> None:
    before = static(layer("Conv", 100, params=10), layer("Gemm", 10, params=5), params=15)
    after = static(
        layer("Conv", 100, params=40), layer("Gemm", 30, params=5), layer("Exp", 0), params=45
    )
    why = {m.name: m.reason for m in compared(before, after).metrics if m.reason is not None}
    assert why == {
        "macs": "1 of 1 Gemm of another size",
        "params": "1 of 1 Conv with other params",
    }
    kept = compare_with_stored(CASE, stored(before), after)
    why = {m.name: m.reason for m in kept.metrics if m.reason is not None}
    assert why == {"macs": "Gemm: 1 as before, of other shapes"}
    assert all(metric.reason is None for metric in compared(after, before).metrics)


def test_against_stored_counts_the_reasons_name_operators_only() -> None:
    before = static(layer("Conv", 100), layer("Gemm", 10), layer("Relu", 0))
    after = static(layer("Conv", 100), layer("Gemm", 30), layer("Exp", 0))
    found = compare_with_stored(CASE, stored(before), after)
    assert set(found.reasons) == {
        "1 Relu removed, none left",
        "Gemm: 1 as before, of other shapes",
        "1 Exp added",
    }


def test_the_operator_that_grew_most_comes_first() -> None:
    before = static(layer("Conv", 100), layer("Gemm", 10), layer("Relu", 0))
    after = static(layer("Conv", 90), layer("Gemm", 20), layer("MatMul", 50), layer("Relu", 0))
    changes = compared(before, after).layer_types
    assert [change.op for change in changes] == ["MatMul", "Gemm", "Relu", "Conv"]
    assert [change.added_macs for change in changes] == [50, 10, 0, -10]


def test_operators_of_two_domains_are_two_operators() -> None:
    foreign = replace(layer("Conv", 5), domain="my.ops")
    case = compared(static(layer("Conv", 100)), static(layer("Conv", 100), foreign))
    assert case.reasons == ("1 my.ops::Conv added (first: Conv): +5 MACs",)


def test_reasons_show_names_escaped() -> None:
    evil = layer("Conv\x1b[31m")
    (reason,) = compared(static(layer()), static(layer(), evil)).reasons
    assert reason == r"1 Conv\x1b[31m added (first: Conv\x1b[31m): +100 MACs"


LAYERS = st.lists(
    st.builds(
        layer,
        st.sampled_from(["Conv", "Gemm", "Relu", "Add"]),
        st.integers(0, 50),
        elementwise_ops=st.integers(0, 9),
        output_bytes=st.none() | st.integers(0, 9),
    ),
    min_size=1,
    max_size=6,
)
STATICS = st.builds(
    lambda layers, params, peak, missing: static(
        *layers, params=params, peak=peak, uncounted=min(missing, len(layers))
    ),
    LAYERS,
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.integers(0, 1),
)


@given(STATICS, STATICS)
def test_turned_round_what_was_better_is_worse(a: StaticProfile, b: StaticProfile) -> None:
    there, back = compared(a, b), compared(b, a)
    for old, new in zip(there.metrics, back.metrics, strict=True):
        assert (new.before, new.after) == (old.after, old.before)
        assert new.verdict is OPPOSITE[old.verdict]
    added = {change.op: (change.added_macs, change.added_ops) for change in there.layer_types}
    for change in back.layer_types:
        macs, ops = added[change.op]
        assert (change.added_macs, change.added_ops) == (-macs, -ops)


@given(STATICS, STATICS)
def test_the_changes_by_operator_add_up_to_the_whole_difference(
    a: StaticProfile, b: StaticProfile
) -> None:
    case = compared(a, b)
    assert sum(change.added_macs for change in case.layer_types) == b.macs - a.macs
    assert (
        sum(change.added_ops for change in case.layer_types)
        == b.elementwise_ops - a.elementwise_ops
    )


@given(STATICS)
def test_a_profile_is_never_better_or_worse_than_itself(a: StaticProfile) -> None:
    case = compared(a, a)
    assert case.verdict in (Verdict.PASSED, Verdict.INCONCLUSIVE)
    assert (case.verdict is Verdict.PASSED) == (a.coverage == 1.0)
    assert all(change.is_equal for change in case.layer_types)
