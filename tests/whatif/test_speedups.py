"""The laws of levels and estimates: one scale for all, and nothing between that is not between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.measurements import LayerTime, Noise, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import WAITING, Level, Variant, VariantKind
from pytest_modelperf.whatif.speedups import (
    VariantResult,
    check_variants,
    describe_precisions,
    describe_waiting,
    describe_zeros,
    estimate_level,
    inverted,
    make_levels,
)
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.profiles import ENGINE, make_measurement
from tests.support.whatifs import OVERHEAD, make_baseline, make_layer, make_layers, make_speedup

CASE = Case(4, 1)
LAYERS = make_layers()
PRUNED, INT8 = VariantKind.PRUNED, VariantKind.QUANTIZED
MS = st.floats(0.01, 1e3)
RATIOS = st.floats(0.05, 20.0)
SHARES = st.floats(0.01, 0.99)
# Profiles take a while to make.
few = settings(max_examples=20)


def profile(ms: float) -> CaseProfile:
    return make_baseline(LAYERS, CASE, ms)


def result_of(
    variant: Variant, before_ms: float = 6.0, factor: float = 1.0, **others: object
) -> VariantResult:
    """A duet in which the variant took `factor` times as long."""
    fields: dict[str, object] = {
        "before": profile(before_ms),
        "after": profile(before_ms * factor),
        "ratio": Ratio(factor, factor * 0.99, factor * 1.02),
        "rounds": 6,
    }
    return VariantResult(variant=variant, **(fields | others))  # type: ignore[arg-type]  # of many kinds


def pruned(share: float) -> Variant:
    return Variant(PRUNED, share)


def levels_of(*made: VariantResult, estimates: tuple[float, ...] = ()) -> tuple[Level, ...]:
    return make_levels(CaseProfile(CASE, None), 1000, 0.0, made, estimates).levels


@few
@given(st.lists(st.tuples(MS, RATIOS), min_size=1, max_size=5))
def test_every_level_has_the_speedup_of_its_own_duet(
    duets: list[tuple[float, float]],
) -> None:
    made = [result_of(Variant(INT8, form=str(i)), ms, ratio) for i, (ms, ratio) in enumerate(duets)]
    first, *others = levels_of(*made)
    assert first.ms is not None
    assert min(ms for ms, _ in duets) * 0.99 <= first.ms <= max(ms for ms, _ in duets) * 1.01
    for level, (_, ratio) in zip(others, duets, strict=True):
        assert level.ms == pytest.approx(first.ms * ratio)
        assert known(level.speedup).value == pytest.approx(first.ms / (level.ms or 0.0))


@few
@given(st.lists(st.tuples(MS, RATIOS), min_size=1, max_size=5))
def test_layer_types_add_up_to_the_time_of_their_level(duets: list[tuple[float, float]]) -> None:
    made = [result_of(Variant(INT8, form=str(i)), ms, ratio) for i, (ms, ratio) in enumerate(duets)]
    for level in levels_of(*made):
        assert sum(level.layer_types.values()) == pytest.approx(level.ms, rel=1e-4)
        assert sum(level.layers.values()) == pytest.approx(
            sum(level.layer_types.values()) - level.layer_types[OVERHEAD]
        )


def test_the_unchanged_model_has_the_median_of_all_duets() -> None:
    made = [result_of(Variant(INT8, form=str(ms)), ms) for ms in (5.0, 6.0, 9.0)]
    found = make_levels(CaseProfile(CASE, None), 1000, 0.25, made)
    first = found.levels[0]
    assert found.baseline == profile(6.0)
    assert first.ms == pytest.approx(6.0, rel=0.01)
    assert (first.title, first.variant, first.size_bytes, first.zeros) == (
        "Baseline", None, 1000, 0.25,
    )  # fmt: skip
    assert first.macs == profile(6.0).static.macs


@given(st.floats(0.1, 10), st.floats(0.5, 1.0), st.floats(1.0, 2.0))
def test_a_speedup_is_the_ratio_the_other_way_round(value: float, low: float, high: float) -> None:
    ratio = Ratio(value, value * low, value * high)
    found = inverted(ratio)
    assert known(found.low) <= found.value <= known(found.high)
    twice = inverted(found)
    assert (twice.value, twice.low, twice.high) == pytest.approx(
        (ratio.value, ratio.low, ratio.high)
    )


def test_a_speedup_without_an_interval_has_none_either() -> None:
    assert inverted(Ratio(0.5, None, None)) == Ratio(2.0, None, None)


def test_failed_levels_keep_their_reason_and_the_others_their_times() -> None:
    bad = VariantResult(variant=Variant(INT8, form="static"), failure="no such operator")
    first, good, lost = levels_of(result_of(pruned(0.5)), bad)
    assert (lost.ms, lost.speedup, lost.failure) == (None, None, "no such operator")
    assert first.ms is not None
    assert good.failure is None


def test_without_a_run_there_are_no_times() -> None:
    unmeasured = CaseProfile(CASE, profile(1.0).counted)
    bad = VariantResult(variant=pruned(0.5), failure="it crashed")
    found = make_levels(unmeasured, 1000, None, [bad], [0.25])
    assert found.baseline is unmeasured
    assert [level.ms for level in found.levels] == [None] * 3
    assert [level.failure is None for level in found.levels] == [True, False, False]
    assert found.levels[0].macs == unmeasured.static.macs


def test_pruning_comes_in_the_order_of_shares_before_all_else() -> None:
    made = [result_of(Variant(INT8, form="static")), result_of(pruned(0.9)), result_of(pruned(0.5))]
    titles = [level.title for level in levels_of(*made, estimates=(0.7,))]
    assert titles == [
        "Baseline", "Pruned 0.5", "Pruned 0.7 (estimate)", "Pruned 0.9", "INT8 static"
    ]  # fmt: skip


def test_a_layer_of_a_variant_alone_adds_no_time_to_a_neighbour() -> None:
    conv, relu, last = make_layer(0, "Conv"), make_layer(1, "Relu"), make_layer(2, "Conv")
    quantized = replace(make_layer(8, "ConvInteger"), name=f"{last.name}_quant")
    added = make_layer(7, "QuantizeLinear"), quantized, make_layer(9, "Cast")
    # The last of several that represent a layer has its output.
    instead = replace(make_layer(3, "Mul"), id=last.id)
    before = make_baseline((conv, relu, last), CASE, 6.0)
    after = make_baseline((conv, relu, added[0], added[1], added[2], instead), CASE, 6.0)
    _, level = levels_of(
        VariantResult(variant=Variant(INT8), before=before, after=after, ratio=Ratio(1.0, 0.9, 1.1))
    )
    # The Relu runs inside of the convolution, and has no time.
    assert list(level.layers) == [conv.id, added[0].id, last.id, added[2].id]
    own = {row.static.id: row.ms for row in after.layers if row.static is not None and row.ms}
    assert level.layers[last.id] == pytest.approx(own[quantized.id] + own[instead.id])
    assert level.layers[added[0].id] == pytest.approx(own[added[0].id])
    assert level.layer_types["ConvInteger"] == pytest.approx(own[added[1].id])


def test_layers_that_share_one_kernel_afterwards_count_for_it() -> None:
    conv, relu = make_layer(0, "Conv"), make_layer(1, "Relu")
    before = make_baseline((conv, relu), CASE, 6.0)
    alone = make_baseline((conv, make_layer(1, "Clip")), CASE, 6.0)
    after = replace(alone, counted=replace(known(alone.counted), layers=(conv, relu)))
    _, level = levels_of(
        VariantResult(variant=Variant(INT8), before=before, after=after, ratio=Ratio(1.0, 0.9, 1.1))
    )
    assert level.layers == {conv.id: pytest.approx(0.9 * 6.0, rel=0.01)}


def outside(made: CaseProfile, *op_types: str, providers: tuple[str, ...]) -> CaseProfile:
    """The profile of an engine with providers of which the last ran these operators."""
    assert made.measured is not None
    times = tuple(
        replace(
            time,
            provider=providers[-1]
            if time.layer is not None and LAYERS[time.layer].op_type in op_types
            else providers[0],
        )
        for time in made.measured.layer_times or ()
    )
    engine = replace(made.measured.engine, providers=providers)
    return replace(made, measured=replace(made.measured, layer_times=times, engine=engine))


def test_outside_is_what_another_provider_than_the_first_ran() -> None:
    both = ("CUDAExecutionProvider", "CPUExecutionProvider")
    made = result_of(
        pruned(0.5),
        before=outside(profile(6.0), "Softmax", providers=both),
        after=outside(profile(6.0), "Softmax", "Add", providers=both),
    )
    first, level = levels_of(made)
    assert set(first.outside) == {layer.id for layer in LAYERS if layer.op_type == "Softmax"}
    assert set(level.outside) == {x.id for x in LAYERS if x.op_type in {"Softmax", "Add"}}


def test_a_layer_outside_of_an_engine_with_one_provider_is_outside() -> None:
    before = outside(profile(6.0), "Softmax", providers=("NPU", "CPU"))
    assert before.measured is not None
    engine = replace(before.measured.engine, providers=("NPU",))
    alone = replace(before, measured=replace(before.measured, engine=engine))

    first, level = levels_of(result_of(pruned(0.5), before=alone, after=alone))

    assert set(first.outside) == {layer.id for layer in LAYERS if layer.op_type == "Softmax"}
    assert level.outside == first.outside


def test_no_layer_is_outside_of_an_engine_that_ran_all() -> None:
    made = result_of(pruned(0.5), after=outside(profile(6.0), "Add", providers=("NPU",)))
    assert [level.outside for level in levels_of(made)] == [(), ()]


def drifted(made: CaseProfile, factor: float) -> CaseProfile:
    """The same latency, of which kernels seemed to take another part as they were timed."""
    assert made.measured is not None
    times = made.measured.layer_times or ()
    kernels = tuple(replace(t, ns=t.ns * factor) for t in times if t.layer is not None)
    left = made.measured.latency.median_ns - sum(time.ns for time in kernels)
    overhead = replace(times[-1], ns=left)
    return replace(made, measured=replace(made.measured, layer_times=(*kernels, overhead)))


def test_the_gain_of_a_layer_is_that_of_its_own_duet() -> None:
    """If its kernels took half of the time that they took in another, both sides did."""
    alike = [result_of(Variant(INT8, form=str(i))) for i in range(2)]
    other = result_of(
        pruned(0.5), before=drifted(profile(6.0), 0.5), after=drifted(profile(6.0), 0.5)
    )
    first, level, *_ = levels_of(*alike, other)
    assert level.title == "Pruned 0.5"
    assert level.layers == pytest.approx(dict(first.layers))
    assert level.layer_types == pytest.approx(dict(first.layer_types), rel=1e-3)


def test_kernels_that_seem_to_take_longer_than_all_are_made_to_fit() -> None:
    made = result_of(pruned(0.5), factor=0.5, after=profile(6.0))
    first, level = levels_of(made)
    assert level.ms == pytest.approx((first.ms or 0) / 2)
    assert sum(level.layer_types.values()) == pytest.approx(level.ms)
    assert OVERHEAD not in level.layer_types


BUSY = Noise(wall_ns=1_000_000_000, others_ns=600_000_000)


def disturbed(undisturbed: CaseProfile, ms: float) -> CaseProfile:
    """The profile of the same layers whose latency waited for a processor."""
    slow = make_measurement(ms, CASE.batch_size)
    times = known(undisturbed.measured).layer_times or ()
    waited = slow.latency.median_ns - sum(time.ns for time in times)
    row = LayerTime(kind=RowKind.WAITING, kernel="", ns=waited)
    rounds = tuple(replace(r, block=replace(r.block, noise=BUSY)) for r in slow.rounds)
    measured = replace(slow, rounds=rounds, layer_times=(*times, row))
    return replace(undisturbed, measured=measured)


@few
@given(
    st.lists(st.tuples(RATIOS, st.floats(1.5, 4.0), st.floats(1.5, 4.0)), min_size=1, max_size=3)
)
def test_layers_keep_their_undisturbed_times_and_the_wait_is_a_row_of_each_level(
    duets: list[tuple[float, float, float]],
) -> None:
    made = [
        result_of(
            Variant(INT8, form=str(i)),
            before=disturbed(profile(6.0), 6.0 * before),
            after=disturbed(profile(6.0 * ratio), 6.0 * ratio * after),
            ratio=Ratio(ratio, ratio * 0.99, ratio * 1.02),
        )
        for i, (ratio, before, after) in enumerate(duets)
    ]
    first, *others = levels_of(*made)
    alone, *others_alone = levels_of(
        *(result_of(Variant(INT8, form=str(i)), 6.0, ratio) for i, (ratio, *_) in enumerate(duets))
    )
    for level, quiet in ((first, alone), *zip(others, others_alone, strict=True)):
        assert level.ms is not None
        assert level.layers == pytest.approx(dict(quiet.layers), rel=1e-3)
        assert level.layer_types[OVERHEAD] == pytest.approx(quiet.layer_types[OVERHEAD], rel=1e-2)
        assert level.layer_types[WAITING] > 0.3 * level.ms
        assert sum(level.layer_types.values()) == pytest.approx(level.ms, rel=1e-4)


def test_a_duet_that_was_not_disturbed_is_shown_on_the_scale_of_one_that_was() -> None:
    quiet = result_of(pruned(0.5), 6.0, 0.5)
    busy = [
        result_of(
            Variant(INT8, form=form), before=disturbed(profile(6.0), 12.0), after=profile(6.0)
        )
        for form in ("dynamic", "static")
    ]
    first, level, *_ = levels_of(quiet, *busy)
    assert level.title == "Pruned 0.5"
    assert first.ms == pytest.approx(12.0, rel=1e-2)
    assert level.layers == pytest.approx({name: ms / 2 for name, ms in first.layers.items()}, 1e-2)
    assert level.layer_types[WAITING] == pytest.approx(first.layer_types[WAITING] / 2, rel=1e-2)


def test_layers_of_a_disturbed_duet_fill_the_time_of_the_model_if_others_were_shorter() -> None:
    """The median of two duets that took 6 and 8 ms is 7 ms, and its layers take 6.5 of the 8."""
    made = [
        result_of(pruned(0.5), 6.0),
        result_of(pruned(0.9), before=disturbed(profile(7.5), 8.0), after=profile(7.5)),
    ]
    for level in levels_of(*made):
        assert sum(level.layer_types.values()) == pytest.approx(level.ms, rel=1e-4)
        assert level.layer_types.get(WAITING, 1.0) > 0.0


def test_disturbances_are_noted_if_layers_waited() -> None:
    assert describe_waiting(profile(6.0)) is None
    assert describe_waiting(disturbed(profile(6.0), 12.0)) == (
        "other processes took 60 % of its processors: layers have the times that they take "
        'undisturbed, and the rest of each level is "waiting for a processor"; stop other '
        "programs"
    )


def measured_levels(*factors: tuple[float, float]) -> tuple[Level, ...]:
    """The unchanged model, and levels of pruning that take a multiple of its time."""
    return levels_of(*(result_of(pruned(share), 6.0, factor) for share, factor in factors))


@few
@given(st.floats(0.2, 1.0), st.floats(0.05, 1.5), st.floats(0.5, 0.9))
def test_an_estimate_is_between_its_levels(low: float, high: float, share: float) -> None:
    known = measured_levels((0.5, low), (0.9, high))
    found = estimate_level(known, share)
    least, most = sorted((known[1].ms or 0.0, known[2].ms or 0.0))
    assert found.ms is not None
    assert least * 0.999 <= found.ms <= most * 1.001


@few
@given(st.floats(0.2, 1.0), st.floats(0.05, 1.5), SHARES)
def test_each_layer_is_interpolated_and_they_add_up(low: float, high: float, share: float) -> None:
    known = measured_levels((0.5, low), (0.99, high))
    found = estimate_level(known, share)
    at, left, right = (
        (share / 0.5, known[0], known[1])
        if share <= 0.5
        else ((share - 0.5) / 0.49, known[1], known[2])
    )
    for name, ms in found.layers.items():
        assert ms == pytest.approx((1 - at) * left.layers[name] + at * right.layers[name])
    assert found.ms == pytest.approx(sum(found.layer_types.values()), rel=1e-4)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx((known[0].ms or 0) / (found.ms or 1))


def test_the_formula_counts_from_what_was_pruned_by_nothing_if_it_was_measured() -> None:
    """T_base * est_prune / T_prune0, with est_prune = T_prune0 - sum(node_0 - node_s)."""
    first, zero, high = measured_levels((0.0, 1.5), (0.8, 0.5))
    found = estimate_level((first, zero, high), 0.4)
    assert zero.ms is not None
    gained = sum(
        at_zero - (at_zero + high.layer_types[op]) / 2 for op, at_zero in zero.layer_types.items()
    )
    assert found.ms == pytest.approx(known(first.ms) * (zero.ms - gained) / zero.ms, rel=1e-4)


def test_an_estimate_is_marked_and_has_no_interval() -> None:
    found = estimate_level(measured_levels((0.5, 0.5)), 0.25)
    assert (found.title, found.is_estimate) == ("Pruned 0.25 (estimate)", True)
    assert found.notes == ("between Baseline and Pruned 0.5",)
    assert found.speedup is not None
    assert (found.speedup.low, found.speedup.high) == (None, None)
    assert (found.is_faster, found.is_slower) == (False, False)


def test_without_times_of_layers_an_estimate_is_between_whole_times() -> None:
    first, high = (replace(x, layers={}, layer_types={}) for x in measured_levels((0.8, 0.5)))
    found = estimate_level((first, high), 0.4)
    assert found.ms == pytest.approx(0.75 * (first.ms or 0))
    assert found.layers == found.layer_types == {}


def test_beyond_the_measured_levels_there_is_no_estimate() -> None:
    bad = VariantResult(variant=pruned(0.9), failure="it crashed")
    *_, estimate, _ = levels_of(result_of(pruned(0.5)), bad, estimates=(0.7,))
    assert estimate.is_estimate
    assert estimate.ms is None
    assert estimate.failure == "no level of pruning at or above it was measured"


@pytest.mark.parametrize(
    ("variants", "estimates", "message"),
    [
        ((), (), "there is no variant to try: give shares"),
        ((pruned(1.0),), (), "Pruned 1: a share is 0 or more and below 1, such as 0.5; not 1."),
        ((pruned(-0.1),), (), "a share is 0 or more and below 1"),
        ((Variant(VariantKind.NARROWED, 0.0),), (), "Channels 0: a share is above 0 and below 1"),
        ((pruned(0.5),), (0.7,), "measured from 0 to 0.5. Add a pruning beyond it"),
        ((pruned(0.5),), (-0.1,), "would not be between two levels of pruning"),
        ((pruned(0.5),), (0.5,), "0.5 is measured: leave it out"),
        ((pruned(0.5),), (0.0,), "0 is measured: leave it out"),
        ((Variant(INT8, form="static"),), (0.5,), "give some to prune, such as"),
    ],
)
def test_the_error_of_a_contradictory_request_names_valid_ones(
    variants: tuple[Variant, ...], estimates: tuple[float, ...], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_variants(variants, estimates)
    assert message in str(caught.value)


def test_valid_requests_are_accepted() -> None:
    check_variants((pruned(0.0), pruned(0.9), Variant(INT8, form="static")), (0.3, 0.89))


def zeros_level(value: float, half_width: float | None = 0.02, share: float = 0.9) -> Level:
    variant = pruned(share)
    return Level(
        title=variant.title, variant=variant, ms=1.0, speedup=make_speedup(value, half_width)
    )


@pytest.mark.parametrize(
    ("levels", "start"),
    [
        ([zeros_level(1.01)], "onnxruntime 1.31.1 ran sparse weights at dense speed: no gain. "),
        (
            [zeros_level(1.5, None)],
            "no gain from zeros was shown on onnxruntime 1.31.1; a larger max",
        ),
        (
            [zeros_level(1.0, 0.2)],
            "no gain from zeros was shown on onnxruntime 1.31.1; a larger max",
        ),
        ([zeros_level(0.8), zeros_level(1.0)], "no gain from zeros was shown on onnxruntime"),
        ([zeros_level(1.0), zeros_level(1.5)], None),
        ([zeros_level(1.0, share=0.0)], None),
        ([Level(title="Pruned 0.9", variant=pruned(0.9), failure="it crashed")], None),
        ([Level(title="INT8", variant=Variant(INT8), ms=1.0, speedup=make_speedup(1.0))], None),
        ([replace(zeros_level(1.0), is_estimate=True)], None),
    ],
)
def test_only_measured_facts_about_zeros_are_shown(levels: list[Level], start: str | None) -> None:
    found = describe_zeros(levels, ENGINE)
    assert (found is None) == (start is None)
    assert (found or "").startswith(start or "")


def test_an_engine_without_a_version_is_named_alone() -> None:
    found = describe_zeros([zeros_level(1.0)], make_engine("mine"))
    assert known(found).startswith("mine ran ")


@pytest.mark.parametrize(
    ("ran_in", "form", "is_told"),
    [("bfloat16", "bf16", True), ("float32", "bf16", False), ("float32", "f32", True)],
)
def test_a_precision_that_the_model_already_ran_in_is_reported(
    ran_in: str,
    form: str,
    is_told: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    before = profile(6.0)
    assert before.measured is not None
    times = tuple(replace(t, precision=ran_in) for t in before.measured.layer_times or ())
    known = replace(before, measured=replace(before.measured, layer_times=times))
    result = result_of(Variant(VariantKind.PRECISION, form=form), before=known)
    notes = [*describe_precisions([result])]
    assert bool(notes) is is_told
    assert all(f"already ran in {form}" in note for note in notes)


def test_a_quantized_variant_says_nothing_of_precisions() -> None:
    assert not [*describe_precisions([result_of(Variant(INT8, form="dynamic"))])]
