"""The page of a what-if: what its scripts are given, and what it says without them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome
from pytest_modelperf.report.html.render import dump_data, pack
from pytest_modelperf.whatif.records import Level, Variant, VariantKind, WhatIf, WhatIfCase
from pytest_modelperf.whatif.report import SPEED_ONLY
from pytest_modelperf.whatif.report_layers import whatif_data
from tests.support.markup import EVIL, Markup, unpacked_models
from tests.support.profiles import measured_cases
from tests.support.rendered import render_profile_page
from tests.support.whatifs import (
    FAILURE,
    NOTE,
    OVERHEAD,
    make_case,
    make_layer,
    make_layers,
    make_whatif,
    render_whatif_page,
)

# In addition to plotly, which has some 1.6 MB.
MAX_BYTES = 200_000
LAYERS = make_layers()
CASE = make_case(LAYERS)


def entry_of(case: WhatIfCase) -> Any:  # noqa: ANN401  # whatever JSON can hold
    """Return the data of the case that a browser reads."""
    (model,) = json.loads(dump_data(whatif_data(make_whatif(case))))["models"]
    return model["cases"][0]["whatif"]


def text_of(whatif: WhatIf) -> str:
    return Markup(render_whatif_page(whatif)).text


def with_level(case: WhatIfCase, index: int, **fields: object) -> WhatIfCase:
    levels = list(case.levels)
    levels[index] = replace(levels[index], **fields)
    return replace(case, levels=tuple(levels))


def test_types_and_layers_have_a_time_for_each_level_in_order() -> None:
    entry = entry_of(CASE)
    assert [level["title"] for level in entry["levels"]] == [level.title for level in CASE.levels]
    assert [layer["id"] for layer in entry["layers"]] == [layer.id for layer in LAYERS]
    for index, level in enumerate(CASE.levels):
        types = {row["type"]: row["ms"][index] for row in entry["types"]}
        layers = {row["id"]: row["ms"][index] for row in entry["layers"]}
        assert {op: ms for op, ms in types.items() if ms is not None} == level.layer_types
        assert {name: ms for name, ms in layers.items() if ms is not None} == level.layers


def test_a_level_says_what_it_is_and_what_it_gains() -> None:
    baseline, _, estimate, pruned, _, failed = entry_of(CASE)["levels"]
    assert baseline["speedup"] is None
    assert estimate["is_estimate"]
    assert estimate["speedup"] == [1.21, None, None]
    assert pruned["speedup"][1] < pruned["speedup"][0] < pruned["speedup"][2]
    assert not pruned["is_estimate"]
    assert (failed["failure"], failed["total_ms"]) == (FAILURE, None)
    assert pruned["failure"] is None


def test_a_layer_has_its_id_type_and_weight_and_says_where_it_ran() -> None:
    first, fused, *_, last = entry_of(CASE)["layers"]
    assert (first["id"], first["type"], first["weight"], first["depth"]) == (
        "stage0/conv_output_0", "Conv", "stage0/conv.weight", 0,
    )  # fmt: skip
    assert fused["runs_in"] == first["id"]
    assert first["runs_in"] is None
    assert last["type"] == "Softmax"
    assert last["outside"] == [False, False, False, True, False, False]
    assert first["outside"] == [False] * 6


def test_operators_that_only_a_variant_has_come_after_those_of_the_model() -> None:
    case = with_level(CASE, 4, layer_types={"ConvInteger": 1.5, "Add": 0.4, OVERHEAD: 0.1})
    types = entry_of(case)["types"]
    assert [row["type"] for row in types] == [*CASE.baseline.layer_types, "ConvInteger"]
    assert types[-1]["ms"] == [None, None, None, None, 1.5, None]
    assert types[-1]["count"] is None
    counts = {row["type"]: row["count"] for row in types}
    assert (counts["Conv"], counts["Add"], counts[OVERHEAD]) == (4, 2, None)
    assert [row["type"] for row in types if not row["is_layer"]] == [OVERHEAD]


def test_a_time_of_a_layer_that_the_model_does_not_have_is_not_lost() -> None:
    case = with_level(CASE, 4, layers={**CASE.levels[4].layers, "quantized_input": 0.25})
    *layers, extra = entry_of(case)["layers"]
    assert len(layers) == len(LAYERS)
    assert extra["id"] == "quantized_input"
    assert not extra["is_layer"]
    assert extra["ms"] == [None, None, None, None, 0.25, None]


def test_the_page_says_all_that_the_terminal_does() -> None:
    made = dt.datetime(2026, 5, 6, 7, 8, tzinfo=dt.timezone.utc)
    text = Markup(render_whatif_page(make_whatif(CASE), made=made)).text
    for sentence in (
        "encoder.onnx: what if 1 of 6 levels failed",
        "6.700 149.3 4.762 210.0 x1.41 Pruned 0.9",
        "Pruned 0.7 (estimate) 5.796 172.5 x1.21 6.000 M 12.00 k 70.0 %",
        "Pruned 0.9 4.762 210.0 x1.41 1.38 … 1.44 faster 6.000 M",
        "INT8 static failed interval: 99 %, of the speedup neither: not decided whether it is",
        SPEED_ONLY,
        "Pruned 0.9 is the fastest, x1.41 (1.38 … 1.44)",
        "x1.41 (1.38 … 1.44) why Conv −1.292 ms, MatMul −0.646 ms machine",
        f"INT8 static: {FAILURE}",
        "Conv 4 2.154 2.175 1.507 0.861 2.800",
        "runtime overhead 0.670 0.670 0.670 0.670 0.670",
        "total 6.700 6.722 5.796 4.762 7.217",
        "INT8 dynamic logits 0.25 0.031 0.998765",
        f"note INT8 dynamic: {NOTE}",
        "Pruned 0.9: 2 layers ran outside the accelerated engine, so no speedup is given for them:",
        "given for them: stage5/softmax_output_0, stage11/softmax_output_0",
        "outputs with pruned weights mean nothing",
        "onnxruntime 1.31.1",
        "AMD EPYC 9R14, 2 cores, 24.00 GiB",
        "confidence 99 %",
        "took 61.2 s",
        "how: 24 rounds in 4 duets",
        "2026-05-06 07:08 UTC",
    ):
        assert sentence in text


def test_the_page_names_what_makes_outputs_meaningless() -> None:
    narrowed = Variant(VariantKind.NARROWED, 0.5)
    case = replace(CASE, levels=(CASE.levels[0], replace(CASE.levels[3], variant=narrowed)))
    text = text_of(make_whatif(case))
    assert "outputs with removed channels mean nothing" in text
    assert "pruned" not in text


def test_every_line_names_its_case_if_there_are_several() -> None:
    whatif = make_whatif(CASE, make_case(case=Case(8, 2), ms=31.0))
    text = text_of(whatif)
    assert "2 of 12 levels failed" in text
    assert "b1-c1: Pruned 0.9 is the fastest" in text
    assert "b8-c2: Pruned 0.9 is the fastest" in text
    assert "b8-c2 Pruned 0.9 22.03 363.1" in text
    assert "case level ms per batch" in text
    assert "case level ms per batch" not in text_of(make_whatif(CASE))


def test_an_estimate_and_what_is_unsure_are_never_called_the_fastest() -> None:
    case = replace(CASE, levels=CASE.levels[:3])
    text = text_of(make_whatif(case))
    assert "no variant is shown to be faster" in text
    assert "is the fastest" not in text
    assert "failed" not in text
    assert "zeros" in text
    no_zeros = replace(case, levels=tuple(replace(level, zeros=None) for level in case.levels))
    assert "zeros" not in text_of(make_whatif(no_zeros))


def test_the_first_of_many_layers_outside_are_named() -> None:
    outside = tuple(f"layer{index}" for index in range(8))
    text = text_of(make_whatif(with_level(CASE, 1, outside=outside)))
    assert "8 layers ran outside" in text
    assert "layer0, layer1, layer2, layer3, layer4 and 3 more" in text
    one = text_of(make_whatif(with_level(CASE, 1, outside=("layer0",))))
    assert (
        "1 layer ran outside the accelerated engine, so no speedup is given for it: layer0" in one
    )


def test_a_case_that_could_not_run_has_a_page() -> None:
    baseline = CaseProfile(
        Case(1, 1), CASE.baseline.counted, None, Outcome.FAILED, "the worker was ended by SIGKILL"
    )
    failure = "the worker was ended by SIGKILL"
    variant = Variant(VariantKind.PRUNED, 0.9)
    levels = (Level(title="Baseline", failure=failure),
              Level(title=variant.title, variant=variant, failure=failure))  # fmt: skip
    case = WhatIfCase(case=Case(1, 1), baseline=baseline, levels=levels)
    text = text_of(make_whatif(case))
    assert "2 of 2 levels failed" in text
    assert f"Baseline, Pruned 0.9: {failure}" in text
    assert {ms for row in entry_of(case)["layers"] for ms in row["ms"]} == {None}


def sections_of(page: str) -> list[str | None]:
    return [dict(attributes)["id"] for tag, attributes in Markup(page).tags if tag == "section"]


def test_a_page_has_only_the_parts_of_its_kind() -> None:
    page = render_whatif_page(make_whatif(CASE))
    assert sections_of(page) == ["speedups", "overview", "whatif", "facts"]
    assert "whatif" not in sections_of(render_profile_page(measured_cases()))


def named(name: str) -> WhatIf:
    """A what-if in which everything that comes from a model or an engine has that name."""
    layers = [make_layer(index, op_type=name, name=f"{name}{index}") for index in range(3)]
    case = make_case([replace(layer, weight=name) for layer in layers])
    levels = [
        replace(
            level, failure=level.failure and name, notes=(name,), outside=(layers[0].id,),
            outputs=(OutputChange(name=name, difference=name), OutputChange(name=name)),
        )
        for level in case.levels
    ]  # fmt: skip
    return make_whatif(replace(case, levels=tuple(levels), notes=(name,)), name=name)


@pytest.mark.slow
@settings(max_examples=10)
@given(st.text(min_size=1, max_size=30))
@example(EVIL)
@example("{% raw %}{{ overview }}{# ")
def test_no_name_becomes_a_part_of_a_page(name: str) -> None:
    page = render_whatif_page(named(name))
    assert Markup(page).tags == Markup(render_whatif_page(named("a"))).tags


def test_a_name_is_shown_unchanged_and_obeyed_by_nothing() -> None:
    page = render_whatif_page(named(EVIL))
    assert EVIL not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    (model,) = unpacked_models(page)
    assert model["cases"][0]["whatif"]["layers"][0]["weight"] == EVIL


def test_the_data_of_2000_layers_is_small() -> None:
    data = whatif_data(make_whatif(make_case(make_layers(2_000))))
    assert len(pack(dump_data(data))) < MAX_BYTES
