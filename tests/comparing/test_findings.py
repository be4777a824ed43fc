"""What a page says first of a case: its judged figures as bars, and the parts that changed most."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.findings import figure_bars, main_parts
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.report.model import Rows, Tone
from tests.support.comparisons import SLOWER


def test_each_judged_figure_that_can_change_has_bars_on_one_scale() -> None:
    bars = figure_bars(SLOWER).bars
    assert [bar.title for bar in bars] == ["p50 latency", "p95 latency"]
    first = bars[0]
    before, after = first.lengths
    assert before is not None
    assert after is not None
    assert after / before == pytest.approx(29.18 / 26.10)
    assert first.interval is not None
    assert first.interval[0] / before == pytest.approx(1.102)
    assert first.allowed == pytest.approx(1.03 * before)
    assert first.interval[1] <= 1
    assert first.tone is Tone.BAD
    assert first.texts == ("26.10 ms", "29.18 ms")


def test_a_figure_with_a_limit_has_no_side_before_and_ends_at_its_limit() -> None:
    metric = Metric("latency_p95", None, 14.2, Verdict.OVER_BUDGET, limit=12.0)
    (bar,) = figure_bars(replace(SLOWER, metrics=(metric,))).bars
    assert bar.lengths == (None, 1.0)
    assert bar.texts == ("", "14.20 ms")
    assert bar.allowed == pytest.approx(12.0 / 14.2)


@pytest.mark.parametrize("after", [None, float("inf"), -1.0])
def test_what_has_no_length_has_no_bars(after: float | None) -> None:
    metric = replace(SLOWER.metrics[0], after=after)
    assert figure_bars(replace(SLOWER, metrics=(metric,))).is_empty


def test_the_parts_are_the_layers_that_explain_most() -> None:
    (rows,) = main_parts(SLOWER, COMMAND_WORDING)
    assert isinstance(rows, Rows)
    assert [column.title for column in rows.table.columns] == [
        "layer", "type", "change", "explains", "interval",
    ]  # fmt: skip
    assert [row[0] for row in rows.table.rows] == [
        "layer1.0/conv2", "layer1.0/relu", "layer4/Transpose",
    ]  # fmt: skip
    assert rows.table.rows[0][1:] == ("Conv", "+0.61", "20 %", "+0.52 … +0.70")
