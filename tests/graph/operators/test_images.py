"""Resampling, and what detectors do with boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, MOV, MUL
from pytest_modelperf.graph.operators.signals import INTERSECTION_OVER_UNION
from pytest_modelperf.graph.structure import Tensor
from tests.graph.operators.nodes import node, ops, unknown


@pytest.mark.parametrize(
    ("attributes", "each"),
    [({}, MOV), ({"mode": "nearest"}, MOV), ({"mode": "linear"}, 4), ({"mode": "cubic"}, 8)],
)
def test_a_resize_has_onnx_tools_weights_and_nearest_is_a_copy(
    attributes: dict[str, Any], each: int
) -> None:
    call = node("Resize", [(1, 3, 8, 8), None, (4,)], [(1, 3, 16, 16)], **attributes)
    assert ops(call) == 3 * 256 * each


def test_older_names_of_linear_count_as_linear() -> None:
    for op in ("Upsample", "com.microsoft.nchwc::Upsample"):
        assert ops(node(op, [(1, 3, 8, 8)], [(1, 3, 16, 16)], mode="bilinear")) == 3 * 256 * 4


def test_an_antialiased_resize_looks_further_as_it_shrinks() -> None:
    def resize(before: int, after: int, antialias: int) -> int:
        x, y = (1, 3, before, 8), (1, 3, after, 8)
        return ops(node("Resize", [x], [y], mode="linear", antialias=antialias))

    assert resize(32, 8, 1) == 4 * resize(32, 8, 0)
    assert resize(20, 8, 1) == 3 * resize(20, 8, 0)
    assert resize(8, 32, 1) == resize(8, 32, 0)


@pytest.mark.parametrize(("mode", "each"), [("nearest", MOV), ("bilinear", 4), ("bicubic", 8)])
def test_a_grid_is_brought_to_pixels_once_for_all_channels(mode: str, each: int) -> None:
    call = node("GridSample", [(2, 3, 8, 8), (2, 5, 5, 2)], [(2, 3, 5, 5)], mode=mode)
    assert ops(call) == 150 * each + 100 * (MUL + ADD)


def test_a_grid_sample_is_linear_by_default() -> None:
    shapes = [(2, 3, 8, 8), (2, 5, 5, 2)]
    given_mode = node("GridSample", shapes, [(2, 3, 5, 5)], mode="linear")
    assert ops(node("GridSample", shapes, [(2, 3, 5, 5)])) == ops(given_mode)


def test_an_affine_grid_applies_theta_to_each_point() -> None:
    flat = node("AffineGrid", [(2, 2, 3), (4,)], [(2, 5, 5, 2)])
    assert ops(flat) == 100 * 2 * (MUL + ADD)
    solid = node("AffineGrid", [(2, 3, 4), (5,)], [(2, 5, 5, 5, 3)])
    assert ops(solid) == 750 * 3 * (MUL + ADD)


def test_columns_are_added_into_the_picture() -> None:
    assert ops(node("Col2Im", [(1, 27, 36), (2,), (2,)], [(1, 3, 8, 8)])) == 27 * 36 * ADD


def test_a_region_is_aligned_by_a_grid_of_bilinear_samples() -> None:
    shapes = [(1, 256, 50, 50), (100, 4), (100,)]
    out = (100, 256, 7, 7)
    elements = 100 * 256 * 49
    averaged = node("RoiAlign", shapes, [out], sampling_ratio=3)
    assert ops(averaged) == elements * (9 * (4 + ADD) + DIV)
    assert ops(node("RoiAlign", shapes, [out], mode="max")) == elements * 4 * (4 + CMP)


def test_pooled_regions_are_at_most_the_whole_picture() -> None:
    call = node("MaxRoiPool", [(2, 8, 10, 10), (5, 5)], [(5, 8, 2, 2)])
    assert ops(call) == 5 * 800 * CMP


def test_crops_are_bilinear_by_default() -> None:
    shapes, out = [(1, 3, 9, 9), (4, 4), (4,), (2,)], [(4, 3, 5, 5)]
    crop = "com.microsoft::CropAndResize"
    assert ops(node(crop, shapes, out)) == 300 * 4
    assert ops(node(crop, shapes, out, mode="nearest")) == 300 * MOV


def test_an_overlap_is_counted_as_its_formula() -> None:
    intersection, area, union = 4 * CMP + 2 * ADD + 2 * CMP + MUL, 2 * ADD + MUL, 2 * ADD
    assert INTERSECTION_OVER_UNION == intersection + 2 * area + union + DIV + CMP == 22


def limit(value: int | None) -> Tensor:
    array = None if value is None else np.array([value], np.int64)
    return Tensor("limit", "int64", (1,), is_constant=value is not None, value=array)


def suppression(boxes: int, most: Tensor | None, *threshold: tuple[int, ...] | None) -> int:
    shapes = [(1, boxes, 4), (1, 1, boxes), most, *threshold]
    return ops(node("NonMaxSuppression", shapes, [unknown()]))


@given(boxes=st.integers(1, 40), most=st.integers(0, 50))
def test_each_box_meets_all_that_were_chosen_before_it(boxes: int, most: int) -> None:
    """Without overlaps everything is chosen up to the limit, which a loop over boxes shows."""
    pairs = chosen = 0
    for _ in range(boxes):
        pairs += chosen
        chosen = min(chosen + 1, most)
    ranking = boxes * (boxes - 1).bit_length() * CMP
    assert suppression(boxes, limit(most)) == ranking + pairs * INTERSECTION_OVER_UNION


def test_a_limit_that_is_left_out_chooses_none_and_an_unknown_one_all() -> None:
    assert suppression(16, None) == 16 * 4 * CMP
    assert suppression(16, limit(None)) == suppression(16, limit(16))
    assert suppression(16, None, None, (1,)) == suppression(16, None) + 16 * CMP


def test_classes_and_pictures_are_suppressed_apart() -> None:
    one = suppression(16, limit(4))
    many = node("NonMaxSuppression", [(2, 16, 4), (2, 3, 16), limit(4)], [unknown()])
    assert ops(many) == 6 * one
