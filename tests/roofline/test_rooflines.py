"""The roofline: what a kernel moves, what the peaks allow it, and what is said of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.roofline.records import (
    UNKNOWN_SIZE,
    Bandwidth,
    Bound,
    Roofline,
    kernel_works,
    place_layers,
    rooflines_to_json,
    theoretical_roofs,
)
from pytest_modelperf.roofline.report import roofline_additions
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.peaks import make_peaks
from tests.support.profiles import ENGINE, MACHINE, measured_classifier
from tests.support.rendered import render_profile
from tests.support.small_models import ones, parse, static_of

FLOAT = 4
MIB = 1 << 20


def run_of(
    static: StaticProfile,
    *times: tuple[float, Sequence[int]],
    precision: str = "float32",
    doubts_ns: Sequence[float] = (),
) -> CaseProfile:
    """A case whose kernels took so long, each for the first of its layers."""
    case = measured_classifier().cases[0]
    made = tuple(
        LayerTime(
            kind=RowKind.LAYER, kernel="k", ns=ns, layer=layers[0], fused=tuple(layers[1:]),
            precision=precision, doubts_ns=() if doubt is None else (doubt,),
        )
        for (ns, layers), doubt in zip_longest(times, doubts_ns)
    )  # fmt: skip
    return replace(case, counted=static, measured=replace(known(case.measured), layer_times=made))


def moved(static: StaticProfile, *layers: int) -> int:
    """The bytes that one kernel of these layers moves."""
    case = run_of(static, (1.0, layers))
    (done,) = kernel_works(static, known(case.measured).layer_times or ())
    return known(done.work).nbytes


def test_a_layer_moves_its_weights_its_inputs_and_its_outputs_once() -> None:
    text = "g (float[8,4] x) => (float[8,2] y) { m = MatMul(x, w) y = Add(m, m) }"
    static = static_of(text, w=ones(4, 2))
    product, added = static.layers
    assert product.reads == {"x": 8 * 4 * FLOAT, "w": 4 * 2 * FLOAT}
    assert product.writes == {"m": 8 * 2 * FLOAT}
    assert added.reads == {"m": 8 * 2 * FLOAT}


def test_a_view_moves_nothing_and_what_follows_reads_what_it_is_a_view_of() -> None:
    text = """
        g (float[8,4] x) => (float[32] y) {
            r = Relu(x)
            f = Flatten<axis=0>(r)
            q = Squeeze(f)
            y = Neg(q)
        }
    """
    relu, flat, squeezed, negated = static_of(text).layers
    assert relu.writes == {"r": 8 * 4 * FLOAT}
    assert (flat.reads, flat.writes, squeezed.reads, squeezed.writes) == ({}, {}, {}, {})
    assert negated.reads == {"r": 8 * 4 * FLOAT}


def test_a_lookup_reads_no_more_of_a_table_than_it_writes() -> None:
    text = "g (int64[3] ids) => (float[3,4] y) { y = Gather(table, ids) }"
    (layer,) = static_of(text, table=ones(1000, 4)).layers
    assert layer.reads == {"table": 3 * 4 * FLOAT, "ids": 3 * 8}
    assert layer.writes == {"y": 3 * 4 * FLOAT}


def test_a_lookup_in_quantized_tables_reads_no_more_of_them_than_it_writes() -> None:
    text = """
        g (int32[1,3] ids, int32[1,3] types) => (float[1,3,4] y) {
            y, m = com.microsoft.QEmbedLayerNormalization(ids, types, words, places, kinds, g, g)
        }
    """
    tables = {"words": (1000, 4), "places": (500, 4), "kinds": (2, 4), "g": (4,)}
    weights = {name: np.ones(shape, np.uint8) for name, shape in tables.items()}
    (layer,) = static_of(parse(text, weights=weights)).layers
    assert layer.reads is not None
    assert layer.reads["words"] == layer.reads["places"] == 3 * 4 * FLOAT


@pytest.mark.parametrize(("tokens", "in_use"), [(1, 2), (3, 6), (5, 8)])
def test_experts_that_no_token_can_be_sent_to_are_not_read(tokens: int, in_use: int) -> None:
    text = (
        f"g (float[{tokens},16] x, float[{tokens},8] r) => (y)"
        "{ y = com.microsoft.MoE<k = 2>(x, r, a, , b) }"
    )
    (layer,) = static_of(text, a=ones(8, 32, 16), b=ones(8, 16, 32)).layers
    assert layer.reads is not None
    assert layer.reads["a"] == layer.reads["b"] == in_use * 32 * 16 * FLOAT
    assert layer.reads["x"] == tokens * 16 * FLOAT


def test_packed_experts_and_tables_are_read_in_part() -> None:
    text = """
        g (float[1,256] x, float[1,8] r, int32[3] ids) => (y, z) {
            y = com.microsoft.MoEPacked<k = 2, gate_type = 16, up_type = 16, down_type = 16>(
                x, r, a, a, b
            )
            z = com.microsoft.GatherPacked<K = 64, packed_type = 1>(table, ids)
        }
    """
    shapes = {"a": (8, 32, 66), "b": (8, 256, 9), "table": (1000, 128)}
    weights = {name: np.ones(shape, np.uint8) for name, shape in shapes.items()}
    experts, lookup = static_of(parse(text, weights=weights)).layers
    assert experts.reads is not None
    assert (experts.reads["a"], experts.reads["b"]) == (2 * 32 * 66, 2 * 256 * 9)
    assert known(lookup.reads)["table"] == 3 * 64 * 2


def test_the_body_of_a_loop_moves_its_bytes_on_every_trip() -> None:
    text = """
        g (float[2,4] x) => (y) {
            n = Constant<value_int=3>()
            y = Loop<body = b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t) {
                on = Identity(go)
                t = MatMul(s, w)
            }>(n, , x)
        }
    """
    layers = static_of(text, w=ones(4, 4)).layers
    (product,) = (layer for layer in layers if layer.op_type == "MatMul")
    (loop,) = (layer for layer in layers if layer.op_type == "Loop")
    assert product.writes == {"t": 3 * 2 * 4 * FLOAT}
    assert product.reads == {"s": 3 * 2 * 4 * FLOAT, "w": 3 * 4 * 4 * FLOAT}
    assert (loop.reads, loop.writes) == ({}, {})


RESIDUAL = """
    g (float[8,8] x) => (float[8,8] y, float[8,8] s) {
        m = MatMul(x, w)
        g = Sigmoid(m)
        h = Mul(m, g)
        a = Add(h, x)
        s = Sqrt(a)
        y = Relu(a)
    }
"""
TENSOR = 8 * 8 * FLOAT


@pytest.fixture(scope="module")
def residual() -> StaticProfile:
    return static_of(RESIDUAL, w=ones(8, 8))


def test_a_tensor_that_stays_inside_of_a_kernel_is_not_moved(residual: StaticProfile) -> None:
    # x and w are read, a is written; m, g and h stay inside, however often they are read there.
    assert moved(residual, 0, 1, 2, 3) == 3 * TENSOR
    assert moved(residual, 0) == moved(residual, 0, 1, 2) == 3 * TENSOR


def test_a_tensor_read_outside_its_kernel_too_is_written(residual: StaticProfile) -> None:
    # m goes to the product with its sigmoid as well.
    assert moved(residual, 0, 1) == 4 * TENSOR
    # a goes to the root as well, which is not in this kernel.
    assert moved(residual, 3, 5) == 4 * TENSOR


RATES = st.floats(1e6, 1e15)
SIZES = st.integers(1, 1 << 40)
BANDWIDTHS = st.lists(st.builds(Bandwidth, SIZES, RATES), min_size=1, max_size=8)


@given(BANDWIDTHS, SIZES, SIZES)
def test_more_bytes_are_never_attainable_faster(
    bandwidths: list[Bandwidth], one: int, other: int
) -> None:
    peaks = make_peaks(bandwidths=tuple(bandwidths))
    few, many = sorted((one, other))
    assert peaks.bandwidth_of(few) >= peaks.bandwidth_of(many) * (1 - 1e-12)


@given(BANDWIDTHS, SIZES)
def test_no_measured_traffic_exceeds_the_bandwidth(bandwidths: list[Bandwidth], size: int) -> None:
    peaks = make_peaks(bandwidths=tuple(bandwidths))
    rates = [each.bytes_per_second for each in bandwidths]
    for each in bandwidths:
        assert peaks.bandwidth_of(each.nbytes) >= each.bytes_per_second * (1 - 1e-12)
    assert peaks.bandwidth_of(size) <= max(rates) * (1 + 1e-12)


@given(st.floats(1.0, 1e9), RATES, BANDWIDTHS)
def test_the_least_time_is_that_of_the_bound_and_the_gain_is_the_rest(
    ns: float, rate: float, bandwidths: list[Bandwidth]
) -> None:
    peaks = make_peaks(macs_per_second={"float32": rate}, bandwidths=tuple(bandwidths))
    case = run_of(LINEAR, (ns, (0,)))
    (roof,) = place_layers(case, peaks).layers
    compute_ns = 1e9 * LINEAR_MACS / rate
    memory_ns = 1e9 * LINEAR_BYTES / peaks.bandwidth_of(LINEAR_BYTES)
    assert roof.least_ns == pytest.approx(max(compute_ns, memory_ns))
    assert (roof.bound is Bound.COMPUTE) == (compute_ns > memory_ns)
    assert roof.share == pytest.approx(roof.least_ns / ns)
    assert roof.gain_ns == pytest.approx(max(0.0, ns - roof.least_ns))
    assert roof.is_beyond == (ns < roof.least_ns)
    assert roof.attainable_per_second == pytest.approx(
        min(rate, LINEAR_MACS * peaks.bandwidth_of(LINEAR_BYTES) / LINEAR_BYTES)
    )


LINEAR = static_of(
    "g (float[64,64] x) => (float[64,32] y) { [linear] y = MatMul(x, w) }", w=ones(64, 32)
)
LINEAR_MACS = 64 * 64 * 32
LINEAR_BYTES = FLOAT * (64 * 64 + 64 * 32 + 64 * 32)


def test_layers_come_by_what_there_is_to_gain(residual: StaticProfile) -> None:
    case = run_of(residual, (500.0, (0, 1)), (9000.0, (2,)), (700.0, (3,)))
    roofline = place_layers(case, make_peaks())
    assert [roof.op_type for roof in roofline.layers] == ["Mul", "Add", "MatMul"]
    assert roofline.gain_ns == pytest.approx(sum(roof.gain_ns or 0 for roof in roofline.layers))


@given(st.floats(1.0, 1e9), st.floats(0.0, 3.0), st.floats(0.1, 1e3), st.floats(0.0, 3.0), RATES)
def test_noise_moves_no_gain_but_the_bounds_of_it(
    ns: float, width: float, factor: float, other_width: float, rate: float
) -> None:
    """However noisy a layer is, its gain and its place among the others stay the same."""
    peaks = make_peaks(macs_per_second={"float32": rate})
    widths = {False: (0.0, 0.0), True: (width * ns, other_width * factor * ns)}
    calm, noisy = (
        place_layers(
            run_of(TWO, (ns, (0,)), (factor * ns, (1,)), doubts_ns=widths[is_noisy]), peaks
        )
        for is_noisy in (False, True)
    )
    assert [(r.id, r.gain_ns) for r in calm.layers] == [(r.id, r.gain_ns) for r in noisy.layers]
    assert calm.gain_ns == noisy.gain_ns
    for roof in noisy.layers:
        low_ns, high_ns = known(roof.gain_interval_ns)
        assert 0.0 <= low_ns <= known(roof.gain_ns) <= high_ns
        assert high_ns - low_ns <= 2.0 * (roof.half_width_ns or 0.0) * (1 + 1e-9)
    assert noisy.gain_interval_ns == pytest.approx(
        [math.fsum(r.gain_interval_ns[way] for r in noisy.layers if r.gain_interval_ns)
         for way in (0, 1)]
    )  # fmt: skip


TWO = static_of("g (float[64] x) => (float[64] y) { f = Neg(x) y = Softmax(f) }")


def test_a_gain_without_a_known_interval_has_none() -> None:
    (roof,) = place_layers(run_of(LINEAR, (1e6, (0,))), make_peaks()).layers
    assert roof.gain_interval_ns is None
    assert place_layers(run_of(LINEAR, (1e6, (0,))), make_peaks()).gain_interval_ns is None


def test_a_noisy_layer_far_below_its_roof_is_shown_with_its_doubt() -> None:
    case = run_of(TWO, (2e5, (0,)), (1e6, (1,)), doubts_ns=(1e3, 1.68e6))
    text = shown(place_layers(case, make_peaks()), 80, top=1)
    (row,) = (line for line in text.splitlines() if "Softmax" in line)
    assert row.split()[1:5] == ["Softmax", "1.000", "1.000", "1.680"]
    assert "±: half the interval of ms, and so of what there is to gain" in " ".join(text.split())


def test_the_peak_is_that_of_what_a_kernel_computed_in() -> None:
    case = run_of(LINEAR, (1e6, (0,)), precision="uint8")
    peaks = make_peaks(bandwidths=(Bandwidth(MIB, 1e15),))
    (roof,) = place_layers(case, peaks).layers
    assert roof.precision == "int8"
    assert roof.least_ns == pytest.approx(LINEAR_MACS / 160)


def test_a_layer_whose_precision_has_no_peak_is_left_out_and_counted() -> None:
    case = run_of(LINEAR, (1e6, (0,)), precision="bfloat16")
    roofline = place_layers(case, make_peaks())
    assert roofline.layers == ()
    assert roofline.unplaced == {"no peak is known of bfloat16": 1}


def test_a_layer_of_unknown_operations_is_left_out_and_counted() -> None:
    static = static_of("g (float[4] x) => (z) { y = my.ops.Blend(x) z = NonZero(x) }")
    roofline = place_layers(run_of(static, (10.0, (0,)), (10.0, (1,))), make_peaks())
    assert (roofline.layers, roofline.unplaced) == ((), {UNKNOWN_SIZE: 2})


def test_a_view_has_all_of_its_time_to_gain() -> None:
    static = static_of("g (float[8,4] x) => (float[8,4] y) { f = Flatten(x) y = Neg(f) }")
    (roof,) = place_layers(run_of(static, (3000.0, (0,))), make_peaks()).layers
    assert (roof.least_ns, roof.share, roof.gain_ns, roof.intensity) == (0.0, 0.0, 3000.0, None)
    assert roof.attainable_per_second is None


def test_a_case_that_did_not_run_has_no_layers_beneath_a_roof() -> None:
    case = replace(measured_classifier().cases[0], measured=None)
    assert place_layers(case, make_peaks()).layers == ()
    function = replace(measured_classifier().cases[0], counted=None)
    assert place_layers(function, make_peaks()).layers == ()


def test_the_least_latency_in_theory_is_the_sum_over_all_layers(residual: StaticProfile) -> None:
    peaks = make_peaks()
    roofline = theoretical_roofs(residual, peaks)
    assert [roof.id for roof in roofline.layers] == [layer.id for layer in residual.layers]
    assert all(
        roof.ns is None and roof.gain_ns is None and roof.share is None for roof in roofline.layers
    )
    alone = [place_layers(run_of(residual, (1.0, (i,))), peaks).layers[0] for i in range(6)]
    assert roofline.least_ns == pytest.approx(sum(roof.least_ns for roof in alone))


def test_theory_takes_the_peak_of_what_the_engine_makes_of_a_precision() -> None:
    text = "g (float16[64,64] x, float16[64,32] w) => (float16[64,32] y) { y = MatMul(x, w) }"
    (roof,) = theoretical_roofs(static_of(text), make_peaks()).layers
    assert roof.precision == "float32"


def test_peaks_are_of_one_machine_engine_version_setup_and_number_of_cores() -> None:
    peaks = make_peaks()
    assert peaks.are_of(MACHINE.key, ENGINE, 1)
    assert not peaks.are_of("another", ENGINE, 1)
    assert not peaks.are_of(MACHINE.key, ENGINE, 2)
    assert not peaks.are_of(MACHINE.key, replace(ENGINE, version="1.0"), 1)
    assert not peaks.are_of(MACHINE.key, replace(ENGINE, options={}), 1)
    assert not peaks.are_of(MACHINE.key, make_engine("openvino", ENGINE.version, ENGINE.options), 1)
    assert peaks.are_of(MACHINE.key, replace(ENGINE, python="3.10.1"), 1)


def beneath(case: CaseProfile, **changes: Any) -> Roofline:  # noqa: ANN401  # fields of Peaks
    return place_layers(case, make_peaks(**changes))


@pytest.fixture
def profile() -> Profile:
    return measured_classifier()


def shown(roofline: Roofline, width: int | None, top: int | None = None) -> str:
    blocks = tuple(roofline_additions({"b1-c1": roofline}, top).blocks["b1-c1"])
    text = render_report(Report(title="", blocks=blocks), TextStyle(width))
    assert width is None or all(len(line) <= width for line in text.splitlines())
    return text


def test_a_roofline_in_eighty_columns(profile: Profile) -> None:
    assert shown(beneath(profile.cases[0]), 80) == snapshot("""\
peaks on 1 core, onnxruntime 1.31.1, measured 2026-11-21: float32 40.00 GMAC/s,
  int8 160.0 GMAC/s
memory 10.00 GB/s (100 MiB at once), in cache 50.00 GB/s (1 MiB); balance in
  MAC/B: float32 4.000, int8 16.00

by layer, what there is to gain below the roof
layer         type             ms  to gain      ±  share  bound    GMAC/s   roof
────────────────────────────────────────────────────────────────────────────────
stem_…lution  Conv          6.037    6.026  0.013  0.2 %  compute   0.073  40.00
pool          Globa…gePool  0.134    0.133  0.013  1.0 %  memory
classifier    Gemm          0.131    0.131  0.013  0.0 %  memory    0.001  10.20
flatten       Flatten       0.003    0.003  0.013  0.0 %  memory

total                       6.306    6.293  0.049  0.2 %
roof: the GMAC/s that its MACs and bytes allow at these peaks; share: of the
roof, or, without MACs, of the bandwidth
±: half the interval of ms, and so of what there is to gain; of all layers, the
widest
""")


def test_a_roofline_where_there_is_room(profile: Profile) -> None:
    text = shown(beneath(profile.cases[0], cores=2), 98, top=2)
    assert text == snapshot("""\
peaks on 2 cores, onnxruntime 1.31.1, measured 2026-11-21: float32 40.00 GMAC/s, int8 160.0 GMAC/s
memory 10.00 GB/s (100 MiB at once), in cache 50.00 GB/s (1 MiB); balance in MAC/B: float32 4.000,
  int8 16.00

by layer, what there is to gain below the roof
layer             type                  ms  to gain      ±  share  bound    GMAC/s   roof  MAC/B
────────────────────────────────────────────────────────────────────────────────────────────────
stem_convolution  Conv               6.037    6.026  0.013  0.2 %  compute   0.073  40.00  5.556
pool              GlobalAveragePool  0.134    0.133  0.013  1.0 %  memory

total                                6.306    6.293  0.049  0.2 %
roof: the GMAC/s that its MACs and bytes allow at these peaks; share: of the roof, or, without
MACs, of the bandwidth
±: half the interval of ms, and so of what there is to gain; of all layers, the widest
2 more layers: --top 0 shows all
""")


def test_a_layer_faster_than_the_roof_reaches_at_most_100_percent() -> None:
    case = run_of(LINEAR, (LINEAR_MACS / 50, (0,)))
    text = shown(beneath(case, bandwidths=(Bandwidth(MIB, 1e15),)), 80)
    assert text == snapshot("""\
peaks on 1 core, onnxruntime 1.31.1, measured 2026-11-21: float32 40.00 GMAC/s,
  int8 160.0 GMAC/s
memory 1.000 M GB/s (1 MiB at once); balance in MAC/B: float32 0.000, int8 0.000

by layer, what there is to gain below the roof
layer   type          ms   to gain    share  bound    GMAC/s   roof  MAC/B
──────────────────────────────────────────────────────────────────────────
linear  MatMul  0.002621  0.000000   >100 %  compute   50.00  40.00  4.000

total           0.002621  0.000000  100.0 %
roof: the GMAC/s that its MACs and bytes allow at these peaks; share: of the
roof, or, without MACs, of the bandwidth
>100 %: 1 layer faster than these peaks; the true peaks are at least 50.00
GMAC/s of float32; modelperf profile --measure-peaks measures them again
""")


def test_layers_without_a_roof_are_listed() -> None:
    case = run_of(LINEAR, (1e6, (0,)), precision="bfloat16")
    assert "1 layer left out: no peak is known of bfloat16\n" in shown(beneath(case), None)


def test_the_report_has_the_roofline_between_the_types_and_the_layers(profile: Profile) -> None:
    view, rooflines = LayerView(), {"b1-c1": beneath(profile.cases[0])}
    additions = roofline_additions(rooflines, view.top)
    text = render_profile(profile, view, TextStyle(80), additions)
    places = [text.index(part) for part in ("by layer type", "peaks on 1 core", "by layer, in")]
    assert places == sorted(places)
    assert "peaks on" not in render_profile(profile, view, TextStyle(80))


def test_names_of_a_model_cannot_steer_a_terminal(profile: Profile) -> None:
    roofline = beneath(profile.cases[0])
    evil = replace(roofline.layers[0], name="\x1b[2J")
    assert "\x1b" not in shown(replace(roofline, layers=(evil,)), None)


def test_the_json_of_a_roofline_has_its_figures(profile: Profile) -> None:
    roofline = replace(beneath(profile.cases[0]), unplaced={UNKNOWN_SIZE: 2})
    document = json.loads(dump_profile(profile, rooflines_to_json({"b1-c1": roofline})))
    found = document["cases"][0]["roofline"]
    assert found["layers"][0]["id"] == roofline.layers[0].id
    assert found["layers"][0]["gain_ms"] == pytest.approx((roofline.layers[0].gain_ns or 0) / 1e6)
    assert found["layers"][0]["gain_interval_ms"] == pytest.approx(
        [ns / 1e6 for ns in roofline.layers[0].gain_interval_ns or ()]
    )
    assert found["peaks"]["measured"] == "2026-11-21"
    assert found["peaks"]["balance"]["float32"] == pytest.approx(4.0)
    assert found["unplaced"] == [{"reason": UNKNOWN_SIZE, "count": 2}]


def test_a_profile_without_a_roofline_says_null(profile: Profile) -> None:
    (case,) = json.loads(dump_profile(profile))["cases"]
    assert case["roofline"] is None
