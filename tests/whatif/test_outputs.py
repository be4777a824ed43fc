"""The outputs of variants against a tolerance: which are judged, marked, and reported."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import parse_outputs
from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.whatif.records import Level, Variant, VariantKind, WhatIf, dump_whatif
from pytest_modelperf.whatif.report import WhatIfView, verdict_of
from pytest_modelperf.whatif.variants import judged_lines, with_outputs_judged
from tests.support.command import run
from tests.support.markup import Markup
from tests.support.whatifs import (
    make_case,
    make_speedup,
    make_whatif,
    render_whatif,
    render_whatif_page,
)

MADE = dt.datetime(2026, 1, 31, tzinfo=dt.timezone.utc)
INT8 = Variant(VariantKind.QUANTIZED, form="dynamic")
NEAR = OutputChange(name="y", max_absolute=0.5, largest=10.0)
FAR = OutputChange(name="z", max_absolute=2.0, largest=10.0)
OTHER = OutputChange(name="y", difference="other shapes", is_other=True)
UNKNOWN = OutputChange(name="y", difference="not compared: more than 64 MiB")


def whatif_with(*outputs: OutputChange) -> WhatIf:
    """A what-if whose INT8 variant is twice as fast and has such outputs."""
    case = make_case()
    levels = tuple(
        replace(level, outputs=outputs, speedup=make_speedup(2.0))
        if level.variant == INT8
        else level
        for level in case.levels
    )
    return make_whatif(replace(case, levels=levels))


def judged(*outputs: OutputChange, allowed: float = 0.1) -> tuple[WhatIf, Level]:
    found = with_outputs_judged(whatif_with(*outputs), allowed)
    (level,) = (level for level in found.cases[0].levels if level.variant == INT8)
    return found, level


@pytest.mark.parametrize(
    ("outputs", "word", "line"),
    [
        ((NEAR,), "faster", None),
        ((NEAR, FAR), "other outputs", "differ by 20 % of their largest value, allowed 10 %"),
        ((OTHER,), "other outputs", "differ in more than their values, allowed 10 %"),
        ((NEAR, UNKNOWN), "outputs unknown", "could not be compared, allowed 10 %"),
        ((), "outputs unknown", "could not be compared, allowed 10 %"),
    ],
)
def test_a_variant_is_faster_only_with_outputs_that_are_known_to_be_near(
    outputs: tuple[OutputChange, ...], word: str, line: str | None
) -> None:
    found, level = judged(*outputs)
    assert verdict_of(level) == word
    assert level.is_gain == (word == "faster")
    lines = [] if line is None else [f"INT8 dynamic: outputs {line}"]
    assert list(judged_lines(found.cases[0])) == lines
    shown = render_whatif(found, WhatIfView(), TextStyle(100))
    assert all(each in shown for each in [word, *lines])


def test_a_difference_of_just_the_tolerance_is_allowed() -> None:
    assert verdict_of(judged(FAR, allowed=0.2)[1]) == "faster"
    assert verdict_of(judged(FAR, allowed=0.1999)[1]) == "other outputs"


def test_pruned_estimated_and_failed_levels_are_not_judged() -> None:
    found, _ = judged(FAR)
    verdicts = {level.title for level in found.cases[0].levels if level.judged_outputs is not None}
    assert verdicts == {"INT8 dynamic"}


def test_without_a_tolerance_nothing_is_judged() -> None:
    (case,) = whatif_with(FAR).cases
    assert not any(level.judged_outputs for level in case.levels)
    assert not list(judged_lines(case))


def test_the_page_and_the_document_have_the_verdict() -> None:
    found, _ = judged(FAR)
    document = json.loads(dump_whatif(found))
    assert document["outputs_tolerance"] == 0.1
    levels = document["cases"][0]["levels"]
    verdicts = {level["id"]: level["outputs_verdict"] for level in levels}
    assert verdicts.pop("int8-dynamic") == "regressed"
    assert set(verdicts.values()) == {None}
    page = Markup(render_whatif_page(found, made=MADE)).text
    assert "INT8 dynamic is the fastest" not in page
    assert "other outputs" in page
    near = Markup(render_whatif_page(judged(NEAR)[0], made=MADE)).text
    assert "INT8 dynamic is the fastest" in near


@pytest.mark.parametrize("text", ["0.01", "p50=0.1", "outputs", "outputs=", "outputs=0.1,p50=1"])
def test_a_what_if_judges_outputs_alone(text: str) -> None:
    done = run("whatif", "m.onnx", "--quantize", "int8", "--tolerance", text)
    assert (done.exit_code, "--tolerance" in done.err) == (2, True)


def test_a_tolerance_that_would_judge_nothing_is_refused() -> None:
    done = run("whatif", "m.onnx", "--prune", "0.5", "--tolerance", "outputs=0.1")
    assert done.exit_code == 2
    assert re.search("has no effect.*Add --quantize", done.err)


def test_a_tolerance_may_be_in_percent() -> None:
    assert parse_outputs("a what-if", "outputs = 1 %") == 0.01
