"""Without a plan, layers are the boxes of the graph, as the engine fused them."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.fusion import kernels_of_case
from pytest_modelperf.profiler.measurements import GraphKernel, LayerTime, Measurement, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile
from tests.support.graph_models import load
from tests.support.profiles import make_measurement

_RESIDUAL = """g (float[1, 2, 4, 4] x) => (y) <float[2, 2, 1, 1] w = {1, 2, 3, 4}> {
    a = Relu (x)
    c = Conv (a, w)
    s = Add (c, a)
    y = Relu (s)
}"""


def _counted(text: str) -> StaticProfile:
    return profile_graph(load(text).graph)


def _case(counted: StaticProfile, measured: Measurement | None = None) -> CaseProfile:
    return CaseProfile(Case(1, 1), counted, measured)


def _edges(kernels: tuple[GraphKernel, ...]) -> list[tuple[int | None, tuple[int, ...]]]:
    return [(kernel.layer, kernel.inputs) for kernel in kernels]


def test_a_model_that_did_not_run_has_a_kernel_for_each_layer() -> None:
    kernels = kernels_of_case(_case(_counted(_RESIDUAL)))
    assert _edges(kernels) == [(0, ()), (1, (0,)), (2, (1, 0)), (3, (2,))]
    assert {kernel.ns for kernel in kernels} == {None}


def test_fused_layers_are_one_kernel_that_reads_what_all_of_them_read() -> None:
    times = (
        LayerTime(kind=RowKind.LAYER, kernel="a", ns=5.0, layer=0),
        LayerTime(kind=RowKind.LAYER, kernel="c", ns=9.0, layer=1, fused=(2, 3)),
    )
    measured = replace(make_measurement(), layer_times=times, kernels=None)
    kernels = kernels_of_case(_case(_counted(_RESIDUAL), measured))
    assert _edges(kernels) == [(0, ()), (1, (0,))]
    assert [kernel.ns for kernel in kernels] == [5.0, 9.0]


def test_a_plan_is_shown_as_it_is() -> None:
    planned = (GraphKernel(op_type="ReorderInput", kind=RowKind.LAYOUT, ns=1.0),)
    measured = replace(make_measurement(), kernels=planned)
    assert kernels_of_case(_case(_counted(_RESIDUAL), measured)) == planned


def test_a_body_hangs_at_the_layer_that_runs_it() -> None:
    counted = _counted("""g (int64 n, float[4] x) => (y) {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[4] v) => (bool k, float[4] o)
            { k = Identity (c)  o = Relu (v) }>
    }""")
    kernels = kernels_of_case(_case(counted))
    assert _edges(kernels) == [(0, ()), (1, (0,)), (2, (0,))]


def test_a_kept_profile_has_no_known_connections() -> None:
    counted = _counted(_RESIDUAL)
    kept = replace(counted, layers=tuple(replace(x, fed_by=None) for x in counted.layers))
    assert kernels_of_case(_case(kept)) == ()
