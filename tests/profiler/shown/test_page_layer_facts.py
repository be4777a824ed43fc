"""Facts of the layers and points of a page, computed here in a slow and obvious way."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_modelperf.profiler.shown.page_latency import with_point_facts
from pytest_modelperf.profiler.shown.page_layers import with_layer_facts
from tests.report.pages import sample_data


@pytest.fixture
def raw() -> dict[str, Any]:
    """A case of two sides, as the entries of its layers have it."""
    case: dict[str, Any] = sample_data.comparison()["models"][0]["cases"][0]
    return case


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    return dict(with_layer_facts(raw))


def facts_of_points(model: dict[str, Any]) -> dict[str, Any]:
    return dict(with_point_facts(model))


def test_sums_by_precision_add_up_to_the_layers_of_each_side(raw: dict[str, Any]) -> None:
    sums = facts(raw)["precisions"]
    for side in range(2):
        assert sum(row["counts"][side] for row in sums["rows"]) == len(raw["layers"])
        total = sum(layer["ms"][side] or 0.0 for layer in raw["layers"])
        assert sum(row["ms"][side] or 0.0 for row in sums["rows"]) == pytest.approx(total)
        assert sum(row["shares"][side] or 0.0 for row in sums["rows"]) == pytest.approx(1.0)
    assert sum(each["count"] for each in sums["transitions"]) == len(raw["layers"])


def test_rows_that_are_not_precisions_come_last(raw: dict[str, Any]) -> None:
    places = [row["place"] for row in facts(raw)["precisions"]["rows"]]
    assert places == ["float32", "int8", "in another kernel", "not executed"]


def test_one_side_has_no_transitions_and_no_changes() -> None:
    case = facts(sample_data.profile()["models"][0]["cases"][0])
    assert case["precisions"]["transitions"] == []
    assert {layer["delta_ms"] for layer in case["layers"]} == {None}
    assert not any(layer["differs"] for layer in case["layers"])


def test_another_name_alone_is_not_a_difference(raw: dict[str, Any]) -> None:
    relu = raw["layers"][1]
    relu.update(change_interval_ms=[-0.1, 0.1])
    assert not facts(raw)["layers"][1]["differs"]
    relu.update(kernels=["old", "new"])
    layer = facts(raw)["layers"][1]
    assert not layer["differs"]
    assert [each["name"] for each in layer["parameters"] if each["is_different"]] == ["kernel"]
    relu.update(outputs=["1x64", "1x32"])
    assert facts(raw)["layers"][1]["differs"]


@pytest.mark.parametrize(
    ("state", "host", "reason"),
    [
        ("ran", None, None),
        ("not there", None, "not executed"),
        ("in another kernel", "conv", "in conv"),
        ("in another kernel", None, "in another kernel"),
    ],
)
def test_a_layer_without_a_time_says_why(
    raw: dict[str, Any], state: str, host: str | None, reason: str | None
) -> None:
    raw["layers"][0].update(states=[state, "ran"], runs_in=[host, None])
    assert facts(raw)["layers"][0]["why_no_time"] == [reason, None]


def test_points_are_ranked_and_name_those_that_may_be_equal() -> None:
    for points in facts_of_points(sample_data.sweep()["models"][0])["points"]:
        run = [point for point in points if point["reason"] is None]
        by_rank = sorted(run, key=lambda point: point["rank"])
        assert by_rank == sorted(run, key=lambda point: -point["per_second"])
        for point in run:
            low, high = point["per_second_interval"]
            assert set(point["ties"]) == {
                other["id"]
                for other in run
                if other is not point
                and other["per_second_interval"][0] <= high
                and low <= other["per_second_interval"][1]
            }
            assert [point["maybe_ms"], point["within_ms"]] == point["interval_ms"]


def test_a_point_without_an_interval_may_be_within_from_its_fastest_sample_on() -> None:
    model = sample_data.sweep()["models"][0]
    point = model["points"][0][0]
    point.update(interval_ms=None)
    found = facts_of_points(model)["points"][0][0]
    assert found["within_ms"] is None
    assert found["maybe_ms"] == min(times[0] for times in point["rounds"])
