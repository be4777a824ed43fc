"""The picture of a profile: a box for each kernel, with its time or, without a run, its MACs."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.profiler.measurements import GraphKernel, RowKind
from pytest_modelperf.profiler.shown.page_data import case_picture
from tests.support.known import known
from tests.support.profiles import measured_classifier, measured_function, static_classifier


def test_a_kernel_leads_to_the_row_that_has_its_time() -> None:
    case = measured_classifier().cases[0]
    timed = next(row for row in case.layers if row.time is not None and row.static is not None)
    kernels = (
        GraphKernel(op_type="ReorderInput", kind=RowKind.LAYOUT, ns=1e6),
        GraphKernel(op_type="Conv", inputs=(0,), layer=known(timed.time).layer, ns=2e6),
    )
    picture = case_picture(replace(case, measured=replace(known(case.measured), kernels=kernels)))
    assert picture.unit == "ms"
    assert [box.values for box in picture.boxes] == [(1.0,), (2.0,)]
    assert [box.is_layout for box in picture.boxes] == [True, False]
    assert picture.boxes[1].row == case.layers.index(timed)
    assert timed.static is not None
    assert picture.boxes[1].name == (timed.static.name or timed.static.id)


def test_without_a_run_boxes_have_the_macs_of_their_layers() -> None:
    case = static_classifier().cases[0]
    picture = case_picture(case)
    assert picture.unit == "MACs"
    assert sum(box.values[0] or 0 for box in picture.boxes) == case.static.macs
    assert [box.row for box in picture.boxes] == list(range(len(case.layers)))


def test_a_kept_profile_says_that_its_connections_are_not_known() -> None:
    case = static_classifier().cases[0]
    layers = tuple(replace(layer, fed_by=None) for layer in case.static.layers)
    picture = case_picture(replace(case, counted=replace(case.static, layers=layers)))
    assert picture.boxes == ()
    assert picture.reason.startswith("This case was stored without the connections of its kernels")


def test_a_function_has_no_picture() -> None:
    picture = case_picture(measured_function().cases[0])
    assert (picture.boxes, picture.reason) == ((), "")
