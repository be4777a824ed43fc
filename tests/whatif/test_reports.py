"""The reports of a what-if: the content of the text, the JSON and the CSV, and their layout."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.model import Rows
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.words import display_width
from pytest_modelperf.whatif.records import (
    WAITING,
    WHATIF,
    Level,
    Variant,
    VariantKind,
    WhatIf,
    dump_whatif,
)
from pytest_modelperf.whatif.report import (
    SPEED_ONLY,
    WHATIF_COLUMNS,
    WhatIfView,
    failures_of,
    whatif_report,
)
from pytest_modelperf.whatif.report_layers import View
from tests.support.checkout import ROOT
from tests.support.documents import assert_read_back
from tests.support.known import known
from tests.support.whatifs import (
    make_case,
    make_layer,
    make_layers,
    make_speedup,
    make_whatif,
    render_whatif,
    render_whatif_csv,
    render_whatif_page,
)

DOCS = ROOT / "docs"
EVIL = "a\x1b[31mb\nc\u202ed"
PLAIN = TextStyle()
TOP = WhatIfView(top=3)


# -- text


def test_the_report_at_80_columns() -> None:
    assert render_whatif(make_whatif(), TOP, TextStyle(80)) == snapshot("""\
encoder.onnx: 46.88 KiB, opset 21
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended
Pruned 0.9 is the fastest, x1.41 (1.38 … 1.44)
speed only: what a variant does to accuracy is not measured

model summary
batch  cores  measured ms  items/s  estimated ms  items/s  speedup  level
──────────────────────────────────────────────────────────────────────────────
    1      1        6.700    149.3         4.762    210.0    x1.41  Pruned 0.9
ms: of a batch; estimated: of the level with the largest speedup that was shown

level                  ms per batch  items/s  speedup     interval
───────────────────────────────────────────────────────────────────────────
Baseline                      6.700    149.3
Pruned 0.5                    6.722    148.8    x1.00  0.98 … 1.02  neither
Pruned 0.7 (estimate)         5.796    172.5    x1.21
Pruned 0.9                    4.762    210.0    x1.41  1.38 … 1.44  faster
INT8 dynamic                  7.217    138.6    x0.93  0.91 … 0.95  slower
INT8 static                                                         failed

level                     MACs   params       size   zeros
──────────────────────────────────────────────────────────
Baseline               6.000 M  12.00 k  46.88 KiB   0.0 %
Pruned 0.5             6.000 M  12.00 k  46.88 KiB  50.0 %
Pruned 0.7 (estimate)  6.000 M  12.00 k             70.0 %
Pruned 0.9             6.000 M  12.00 k  46.88 KiB  90.0 %
INT8 dynamic           6.000 M  12.00 k  46.88 KiB   0.0 %
INT8 static
interval: 99 %, of the speedup
neither: not decided whether it is faster or slower

INT8 static: INT8 static needs an operator that this engine does not have:
  QLinearConv

by layer type, in ms
layer type        count  Baseline  Pruned 0.5  Pruned 0.7 ~  Pruned 0.9
───────────────────────────────────────────────────────────────────────
Conv                  4     2.154       2.175         1.507       0.861
Add                   2     1.938       1.938         1.938       1.938
MatMul                2     1.292       1.292         1.034       0.646
runtime overhead            0.670       0.670         0.670       0.670
Softmax               2     0.646       0.646         0.646       0.646

total                       6.700       6.722         5.796       4.762

layer type        count  Baseline  INT8 dynamic
───────────────────────────────────────────────
Conv                  4     2.154         2.800
Add                   2     1.938         1.938
MatMul                2     1.292         1.163
runtime overhead            0.670         0.670
Softmax               2     0.646         0.646

total                       6.700         7.217
~: an estimate, between two levels that were measured

by layer, what gains most first, in ms
layer          type    Baseline  Pruned 0.5  Pruned 0.7 ~  Pruned 0.9
─────────────────────────────────────────────────────────────────────
stage4/matmul  MatMul     1.077       1.077         0.861       0.538
stage8/conv    Conv       0.861       0.870         0.603       0.345
stage2/conv    Conv       0.646       0.653         0.452       0.258
(all else)                4.116       4.122         3.879       3.620

total                     6.700       6.722         5.796       4.762

layer          type    Baseline  INT8 dynamic
─────────────────────────────────────────────
stage4/matmul  MatMul     1.077         0.969
stage8/conv    Conv       0.861         1.120
stage2/conv    Conv       0.646         0.840
(all else)                4.116         4.288

total                     6.700         7.217
7 more layers: --top 0 shows all
~: an estimate, between two levels that were measured

outputs against those of the unchanged model
              output on the same inputs  largest difference  relative    cosine
───────────────────────────────────────────────────────────────────────────────
INT8 dynamic  logits                                   0.25     0.031  0.998765

note: Pruned 0.9: 2 layers ran outside the accelerated engine, so no speedup is
      given for them: stage5/softmax_output_0, stage11/softmax_output_0
note: INT8 dynamic: the times of its layers are those of kernels that ran
      profiled
note: outputs with pruned weights mean nothing, so they are not compared

how: 24 rounds in 4 duets of a variant and the unchanged model, 61.2 s; the time
     of a variant is the time of the unchanged model times their ratio
""")


def test_at_160_columns_all_levels_are_next_to_each_other() -> None:
    text = render_whatif(make_whatif(), TOP, TextStyle(160))
    assert text[text.index("level  ") : text.index("\n\nby layer, ")] == snapshot("""\
level                  ms per batch  items/s  speedup                                               interval              MACs   params       size   zeros
──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
Baseline                      6.700    149.3                                                                           6.000 M  12.00 k  46.88 KiB   0.0 %
Pruned 0.5                    6.722    148.8    x1.00  ████████████████████████████              0.98 … 1.02  neither  6.000 M  12.00 k  46.88 KiB  50.0 %
Pruned 0.7 (estimate)         5.796    172.5    x1.21  ██████████████████████████████████                              6.000 M  12.00 k             70.0 %
Pruned 0.9                    4.762    210.0    x1.41  ████████████████████████████████████████  1.38 … 1.44  faster   6.000 M  12.00 k  46.88 KiB  90.0 %
INT8 dynamic                  7.217    138.6    x0.93  ██████████████████████████                0.91 … 0.95  slower   6.000 M  12.00 k  46.88 KiB   0.0 %
INT8 static                                                                                                   failed
interval: 99 %, of the speedup
neither: not decided whether it is faster or slower

INT8 static: INT8 static needs an operator that this engine does not have: QLinearConv

by layer type, in ms
layer type        count  Baseline  Pruned 0.5  Pruned 0.7 ~  Pruned 0.9  INT8 dynamic
─────────────────────────────────────────────────────────────────────────────────────
Conv                  4     2.154       2.175         1.507       0.861         2.800
Add                   2     1.938       1.938         1.938       1.938         1.938
MatMul                2     1.292       1.292         1.034       0.646         1.163
runtime overhead            0.670       0.670         0.670       0.670         0.670
Softmax               2     0.646       0.646         0.646       0.646         0.646

total                       6.700       6.722         5.796       4.762         7.217
~: an estimate, between two levels that were measured\
""")  # noqa: E501  # it is as wide as the terminal


def layers_in(view: View, whatif: WhatIf | None = None) -> str:
    text = render_whatif(whatif or make_whatif(), WhatIfView(2, view), TextStyle(100))
    found = re.search(r"^by layer, .*?(?=\n\n[^t])", text, re.DOTALL | re.MULTILINE)
    return known(found)[0]


def test_weights_are_named_if_they_move_no_level() -> None:
    def tables(width: int | None, whatif: WhatIf | None = None) -> list[str]:
        text = render_whatif(whatif or make_whatif(), TOP, TextStyle(width))
        return re.findall(r"by layer, .*\n(.*)\n", text)

    (wide,) = tables(None)
    assert wide.split()[:4] == ["layer", "type", "weight", "Baseline"]
    assert wide.replace(" ", "").replace("weight", "") == tables(100)[0].replace(" ", "")
    assert all("weight" not in head for head in tables(80))
    sums = (make_layer(3), make_layer(9))
    (unweighted,) = tables(None, make_whatif(make_case(sums)))
    assert "weight" not in unweighted


def test_layers_are_in_percent_of_the_unchanged_model() -> None:
    assert layers_in(View.PERCENT) == snapshot("""\
by layer, what gains most first, in percent of the whole unchanged model
layer          type    Baseline  Pruned 0.5  Pruned 0.7 ~  Pruned 0.9  INT8 dynamic
───────────────────────────────────────────────────────────────────────────────────
stage4/matmul  MatMul    16.1 %      16.1 %        12.9 %       8.0 %        14.5 %
stage8/conv    Conv      12.9 %      13.0 %         9.0 %       5.1 %        16.7 %
(all else)               71.1 %      71.3 %        64.6 %      57.9 %        76.5 %

total                   100.0 %     100.3 %        86.5 %      71.1 %       107.7 %
8 more layers: --top 0 shows all
~: an estimate, between two levels that were measured\
""")


def test_layers_as_speedups_have_none_outside_of_the_engine() -> None:
    whatif = make_whatif()
    (case,) = whatif.cases
    first = known(case.baseline.layers[0].static)
    levels = tuple(replace(x, outside=(first.id,)) if x.ms else x for x in case.levels)
    shown = layers_in(View.SPEEDUP, replace(whatif, cases=(replace(case, levels=levels),)))
    assert shown == snapshot("""\
by layer, what gains most first, in ms, then how many times as fast
layer          type    Baseline  Pruned 0.5  Pruned 0.7 ~  Pruned 0.9  INT8 dynamic
───────────────────────────────────────────────────────────────────────────────────
stage4/matmul  MatMul     1.077       x1.00         x1.25       x2.00         x1.11
stage8/conv    Conv       0.861       x0.99         x1.43       x2.50         x0.77
(all else)                4.762       x1.00         x1.10       x1.23         x0.93

total                     6.700       x1.00         x1.16       x1.41         x0.93
8 more layers: --top 0 shows all
~: an estimate, between two levels that were measured\
""")


@pytest.mark.parametrize("view", list(View))
@pytest.mark.parametrize("width", [80, 81, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int, view: View) -> None:
    lines = render_whatif(make_whatif(), WhatIfView(None, view), TextStyle(width)).splitlines()
    assert max(map(display_width, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 160, None])
def test_at_any_width_every_level_has_its_column(width: int | None) -> None:
    """However they are spread over tables, none is left out and none is shown twice."""
    text = render_whatif(make_whatif(), TOP, TextStyle(width))
    heads = [line for line in text.splitlines() if line.startswith("layer ")]
    for kind in ("layer type", "layer  "):
        shown = " ".join(line for line in heads if line.startswith(kind))
        for title in ("Pruned 0.5", "Pruned 0.7 ~", "Pruned 0.9", "INT8 dynamic"):
            assert shown.count(title) == 1
        assert "INT8 static" not in shown
    assert "left out" not in text


def test_the_times_of_a_column_add_up_to_its_level() -> None:
    (case,) = make_whatif().cases
    text = render_whatif(make_whatif(), TOP, PLAIN)
    for table in re.findall(r"^by layer.*?\n\ntotal[^\n]*", text, re.DOTALL | re.MULTILINE):
        _, _, _, *rows, _, total = table.splitlines()
        numbers = [
            [0.0 if cell == "-" else float(cell) for cell in re.split(r"  +", row)[-5:]]
            for row in (*rows, total)
        ]
        *times, totals = numbers
        assert [sum(column) for column in zip(*times, strict=True)] == pytest.approx(
            totals, abs=0.01
        )
        assert totals[0] == pytest.approx(case.levels[0].ms, abs=0.001)


def test_waiting_has_a_row_of_its_own_apart_from_the_layers_and_the_rest() -> None:
    case = make_case()
    levels = tuple(
        replace(level, ms=level.ms + 2.0, layer_types={**level.layer_types, WAITING: 2.0})
        if level.ms is not None
        else level
        for level in case.levels
    )
    whatif = make_whatif(replace(case, levels=levels))
    text = render_whatif(whatif, WhatIfView(), TextStyle(200))
    quiet = render_whatif(make_whatif(), WhatIfView(), TextStyle(200))
    (waited,) = [line for line in text.splitlines() if line.startswith(f"({WAITING})")]
    assert waited.split()[-5:] == ["2.000"] * 5
    by_type = [line for line in text.splitlines() if line.startswith(WAITING)]
    assert [line.split()[-5:] for line in by_type] == [["2.000"] * 5]
    rest, same = (
        next(line.split() for line in shown.splitlines() if line.startswith("(all else)"))
        for shown in (text, quiet)
    )
    assert rest == same


def test_colour_adds_nothing_but_colour() -> None:
    plain, coloured = (
        render_whatif(make_whatif(), TOP, TextStyle(80, color)) for color in (False, True)
    )
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    (line,) = (line for line in coloured.splitlines() if line.endswith("  faster\x1b[0m"))
    assert line.startswith("\x1b[32mPruned 0.9")
    assert "\x1b" not in plain


def test_a_level_that_is_not_decided_is_unsure_and_its_word_is_a_pill() -> None:
    report = whatif_report(make_whatif(), TOP)
    (levels,) = (block for block in report.blocks if isinstance(block, Rows) and block.tones)
    tones = [tone.value for tone in levels.tones]
    assert tones == ["plain", "unsure", "plain", "good", "bad", "bad"]
    pills = re.findall(r'class="pill">([^<]+)<', render_whatif_page(make_whatif()))
    found = ["failed", "faster"]
    assert pills == [*found, "neither", "faster", "slower", "failed"]


def test_the_report_names_the_option_that_shows_hidden_rows() -> None:
    assert "--top 0" in render_whatif(make_whatif(), TOP, PLAIN)
    assert "--top 0" not in render_whatif(make_whatif(), WhatIfView(), PLAIN)


def test_the_report_always_says_that_accuracy_is_not_measured() -> None:
    failed = replace(make_case(), levels=make_case().levels[-1:])
    for whatif in (make_whatif(), make_whatif(failed)):
        assert f"\n{SPEED_ONLY}\n" in render_whatif(whatif, TOP, PLAIN)


def test_one_round_of_one_duet_does_not_count_as_several() -> None:
    base, pruned, *_ = make_case().levels
    levels = replace(base, rounds=None), replace(pruned, rounds=1)
    case = replace(make_case(), levels=levels)
    assert "how: 1 round in 1 duet of a variant" in render_whatif(make_whatif(case), TOP, PLAIN)


def test_levels_with_the_same_reason_are_listed_together() -> None:
    variants = [Variant(VariantKind.QUANTIZED, form=form) for form in ("dynamic", "static")]
    levels = [Level(title=v.title, variant=v, failure="it crashed\nat once") for v in variants]
    case = replace(make_case(), levels=(*make_case().levels[:1], *levels))
    assert failures_of(case) == ["INT8 dynamic, INT8 static: it crashed\nat once"]
    assert "INT8 dynamic, INT8 static: it crashed\n  at once\n" in render_whatif(
        make_whatif(case), TOP, PLAIN
    )


def test_without_times_of_layers_there_are_levels_alone() -> None:
    levels = tuple(replace(x, layer_types={}, layers={}) for x in make_case().levels)
    text = render_whatif(make_whatif(replace(make_case(), levels=levels)), TOP, PLAIN)
    assert "Pruned 0.9" in text
    assert "by layer" not in text


def test_an_output_that_cannot_be_compared_says_why() -> None:
    case = make_case()
    levels = (
        *case.levels[:-1],
        replace(case.levels[4], outputs=(OutputChange(name="logits", difference="other shapes"),)),
    )
    text = render_whatif(make_whatif(replace(case, levels=levels)), TOP, PLAIN)
    assert "note: INT8 dynamic: output logits: other shapes\n" in text


def test_a_terminal_folds_the_layers_of_several_cases() -> None:
    several = make_whatif(*(make_case(case=Case(size, 1)) for size in (1, 8)))
    report = whatif_report(several, TOP)
    brief = render_report(report, TextStyle(80), has_details=False)
    assert "b8-c1: Pruned 0.9 is the fastest" in brief
    assert brief.count("\nlevel ") == 4
    assert "by layer" not in brief
    assert TOP.for_details in brief
    whole = render_report(report, TextStyle(80))
    assert (whole.count("by layer type"), whole.count(TOP.for_details)) == (2, 0)
    alone = render_report(whatif_report(make_whatif(), TOP), TextStyle(80), has_details=False)
    assert "by layer type" in alone


def test_the_summary_names_a_level_with_its_whole_answer() -> None:
    """Rates make room for it, which follow from the times."""
    case = make_case()
    levels = tuple(
        level if level.speedup is None else replace(level, speedup=make_speedup(1.83, 0.9))
        for level in case.levels
        if level.variant is None or level.title == "INT8 dynamic"
    )
    unsure = replace(case, levels=levels, case=Case(1, 1))
    text = render_whatif(make_whatif(unsure, replace(unsure, case=Case(2, 1))), TOP, TextStyle(80))
    summary = text.partition("model summary")[2].partition("\n\n")[0]
    assert summary.count("INT8 dynamic, neither") == 2


def test_each_of_several_cases_has_its_tables_under_its_name() -> None:
    cases = [make_case(case=Case(batch, 1)) for batch in (1, 8)]
    text = render_whatif(make_whatif(*cases), TOP, PLAIN)
    assert [text.count(f"\n{name}\n") for name in ("b1-c1", "b8-c1")] == [1, 1]
    assert "\nb1-c1\n" not in render_whatif(make_whatif(), TOP, PLAIN)
    narrow = render_whatif(make_whatif(*cases), TOP, TextStyle(80)).splitlines()
    gains = [line for line in narrow if line.startswith("Pruned 0.9  ") and "1.38" in line]
    assert [line.endswith("  faster") for line in gains] == [True, True]


def evil_whatif() -> WhatIf:
    layers = tuple(
        replace(layer, id=f"{EVIL}{layer.id}", name=f"{EVIL}{layer.name}", weight=EVIL)
        for layer in make_layers()
    )
    case = make_case(layers)
    output = OutputChange(name=EVIL, max_absolute=1.0)
    other = OutputChange(name=EVIL, difference=EVIL)
    levels = tuple(
        replace(
            level, layer_types={**level.layer_types, EVIL: 1.0}, outputs=(output, other),
            notes=(EVIL,), failure=level.failure and EVIL,
        )
        for level in case.levels
    )  # fmt: skip
    whatif = make_whatif(replace(case, levels=levels, notes=(EVIL,)), name=EVIL)
    return replace(whatif, model=replace(whatif.model, path=EVIL))


def test_no_name_can_steer_a_terminal() -> None:
    whatif = evil_whatif()
    for text in (render_whatif(whatif, WhatIfView(), TextStyle(80)), render_whatif_csv(whatif)):
        assert all(char.isprintable() for line in text.split("\n") for char in line)
    assert dump_whatif(whatif).replace("\n", "").isprintable()


def test_a_layer_with_negligible_time_has_no_speedup() -> None:
    """The overhead of the runtime is what is left of a subtraction: 0, or a little more."""
    case = make_case()
    for left in (0.0, 1e-16):
        levels = tuple(
            replace(level, layer_types={**level.layer_types, "Softmax": left if at == 0 else 0.5})
            for at, level in enumerate(case.levels)
        )
        whatif = make_whatif(replace(case, levels=levels))
        text = render_whatif(whatif, WhatIfView(1, View.SPEEDUP), PLAIN)
        (row,) = re.findall(r"^Softmax .*", text, re.MULTILINE)
        assert row.split() == ["Softmax", "2", "0.000", *("-",) * 5]
        rows = csv.DictReader(StringIO(render_whatif_csv(whatif)))
        softmax = [row for row in rows if (row["row"], row["op_type"]) == ("layer type", "Softmax")]
        assert [row["speedup"] for row in softmax] == [""] * 6


@pytest.mark.parametrize(("half_width", "shown"), [(0.02, "1.47 … 1.53"), (0.99, "?"), (None, "?")])
def test_an_interval_that_says_nothing_is_a_question_mark(
    half_width: float | None, shown: str
) -> None:
    case = make_case()
    level = replace(case.levels[1], speedup=make_speedup(1.5, half_width))
    text = render_whatif(
        make_whatif(replace(case, levels=(case.levels[0], level))), TOP, TextStyle(80)
    )
    (line,) = (line for line in text.splitlines() if re.match(r"Pruned 0\.5  .*x1\.50", line))
    _, _, rest = line.partition("x1.50")
    assert re.split(" {2,}", rest.strip())[0] == shown


# -- JSON


def test_the_json_of_a_what_if_is_read_back_by_its_type() -> None:
    for whatif in (make_whatif(), evil_whatif()):
        text = dump_whatif(whatif)
        assert_read_back(text, WHATIF)


def test_the_json_of_a_what_if() -> None:
    document = json.loads(dump_whatif(make_whatif()))
    assert [document[key] for key in ("schema", "confidence", "seconds")] == [1, 0.99, 61.24]
    assert document["model"]["name"] == "encoder.onnx"
    (case,) = document["cases"]
    assert [case[key] for key in ("id", "batch_size", "cores", "dims")] == ["b1-c1", 1, 1, {}]
    assert [level["id"] for level in case["levels"]] == [
        "baseline", "pruned-0.5", "pruned-0.7-estimate", "pruned-0.9", "int8-dynamic", "int8-static"
    ]  # fmt: skip
    assert case["layers"][4] == {
        "id": "stage4/matmul_output_0", "name": "stage4/matmul", "op_type": "MatMul",
        "weight": "stage4/matmul.weight", "macs": 1000000, "params": 2000,
        "kernel": "stage4/matmul", "fused": [], "runs_in": None,
    }  # fmt: skip
    conv, relu, *_ = case["layers"]
    assert (conv["fused"], relu["kernel"], relu["runs_in"]) == ([relu["id"]], None, conv["id"])
    ids = {layer["id"] for layer in case["layers"]}
    assert all({*level["layers"]} <= ids for level in case["levels"])
    level = case["levels"][3]
    whole = make_case().levels[3]
    assert level["layers"] == pytest.approx(dict(whole.layers))
    assert level["layer_types"] == pytest.approx(dict(whole.layer_types))
    assert {key: value for key, value in level.items() if not key.startswith("layer")} == snapshot(
        {
            "id": "pruned-0.9", "title": "Pruned 0.9", "kind": "pruned", "level": 0.9, "form": None,
            "estimate": False, "ms": 4.761785714285715, "items_per_second": 210.00525013125326,
            "speedup": 1.4070351758793969, "interval": [1.3788944723618088, 1.4351758793969849],
            "rounds": 6, "macs": 6000000, "params": 12000, "size_bytes": 48000, "zeros": 0.9,
            "half_widths_ms": {},
            "outside": ["stage5/softmax_output_0", "stage11/softmax_output_0"], "outputs": [],
            "outputs_verdict": None, "notes": [], "failure": None,
        }
    )  # fmt: skip


def test_missing_figures_are_null() -> None:
    (case,) = json.loads(dump_whatif(make_whatif()))["cases"]
    first, estimate, lost = (case["levels"][index] for index in (0, 2, 5))
    assert [first[key] for key in ("kind", "level", "form", "speedup")] == [None] * 4
    assert [estimate[key] for key in ("estimate", "interval", "size_bytes")] == [True, None, None]
    missing = ("ms", "items_per_second", "speedup", "interval", "macs", "params", "zeros")
    assert [lost[key] for key in missing] == [None] * len(missing)
    assert lost["failure"].startswith("INT8 static needs")
    base, pruned, *_ = make_case().levels
    infinite = replace(pruned, speedup=make_speedup(float("inf")))
    text = dump_whatif(make_whatif(replace(make_case(), levels=(base, infinite))))
    assert json.loads(text)["cases"][0]["levels"][1]["interval"] == [None, None]


# -- CSV


def rows_of(whatif: WhatIf) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(render_whatif_csv(whatif))))


def test_the_csv_has_a_row_for_each_level_layer_type_and_layer() -> None:
    rows = rows_of(make_whatif())
    (case,) = make_whatif().cases
    assert tuple(rows[0]) == WHATIF_COLUMNS
    for kind, count in (
        ("model", len(case.levels)),
        ("layer type", sum(len(level.layer_types) for level in case.levels)),
        ("layer", sum(len(level.layers) for level in case.levels)),
    ):
        is_timed = [row["row"] == kind and row["runs_in"] == "" for row in rows]
        assert sum(is_timed) == count


def test_a_fused_layer_of_the_csv_names_the_kernel_that_lists_it() -> None:
    conv, relu, *_ = make_layers()
    case = make_case()
    levels = (replace(case.levels[0], half_widths={conv.id: 0.25}), *case.levels[1:])
    rows = rows_of(make_whatif(replace(case, levels=levels)))
    by_id = {row["name"]: row for row in rows if row["level"] == "Baseline"}
    assert (by_id[conv.id]["fused"], by_id[conv.id]["half_width_ms"]) == (relu.id, "0.25")
    fused = by_id[relu.id]
    assert (fused["ms"], fused["speedup"], fused["runs_in"]) == ("", "", conv.id)
    assert {row["level"] for row in rows if row["name"] == relu.id} == {
        level.title for level in case.levels if level.layers
    }


def level_row(rows: list[dict[str, str]], level: str, kind: str = "model") -> dict[str, str]:
    return next(row for row in rows if (row["level"], row["row"]) == (level, kind))


def test_the_csv_of_a_level_and_of_its_layers() -> None:
    rows = rows_of(make_whatif())
    (case,) = make_whatif().cases
    level = case.levels[3]
    whole = level_row(rows, "Pruned 0.9")
    assert float(whole["ms"]) == level.ms
    assert float(whole["speedup_low"]) == known(level.speedup).low
    assert (whole["kind"], whole["share"], whole["estimate"]) == ("pruned", "0.9", "no")
    conv = level_row(rows, "Pruned 0.9", "layer")
    assert float(conv["speedup"]) == pytest.approx(1 / 0.4)
    assert (conv["name"], conv["op_type"]) == ("stage0/conv_output_0", "Conv")
    assert conv["weight"] == "stage0/conv.weight"
    softmax = [r for r in rows if r["op_type"] == "Softmax" and r["row"] == "layer"]
    # There is no speedup of what ran outside of the accelerated engine.
    assert {r["speedup"] for r in softmax if r["outside"] == "yes"} == {""}
    assert {r["level"] for r in softmax if r["outside"] == "yes"} == {"Pruned 0.9"}
    assert level_row(rows, "INT8 static")["failure"].startswith("INT8 static needs")
    assert level_row(rows, "Baseline", "layer")["speedup"] == ""


def test_if_all_levels_failed_the_csv_says_why() -> None:
    failed = replace(make_case(), levels=make_case().levels[-1:])
    (row,) = rows_of(make_whatif(failed))
    assert (row["ms"], row["items_per_second"]) == ("", "")
    assert row["failure"]


# -- the summary


def summary_of(whatif: WhatIf) -> list[list[str]]:
    """The lines of the first table of the report, below its title."""
    _, summary, *_ = re.split(
        r"^model summary\n", render_whatif(whatif, TOP, PLAIN), flags=re.MULTILINE
    )
    return [re.split(r" {2,}", line) for line in summary.split("\n\n")[0].splitlines()]


def test_a_speedup_that_was_not_shown_is_in_the_summary_with_its_verdict() -> None:
    case = make_case()
    unsure = replace(case.levels[1], ms=4.558, speedup=Ratio(1.47, 0.9, 2.1))
    wrong = replace(unsure, judged_outputs=DIFFERENT)
    for level, cells in (
        (unsure, ["4.558", "219.4", "x1.47", "Pruned 0.5, neither"]),
        (wrong, ["-", "-", "-", "-"]),
    ):
        whatif = make_whatif(replace(case, levels=(case.levels[0], level)))
        _, _, row, *_ = summary_of(whatif)
        assert [cell for cell in row if cell][4:] == cells
        # The document has what was shown.
        assert whatif.cases[0].summary.level is None


DIFFERENT = Metric("outputs", None, 0.5, Verdict.REGRESSED, allowed=0.01)


def test_without_a_gain_the_summary_has_no_estimated_time() -> None:
    case = make_case()
    slower = replace(case, levels=(case.levels[0], case.levels[1]))
    _, _, row, *captions = summary_of(make_whatif(slower))
    summary = slower.summary

    assert [cell for cell in row if cell][2:] == ["6.700", "149.3", "-", "-", "-", "-"]
    assert captions[-1] == ["-: no level was faster, or none could be measured"]
    assert (summary.measured_ms, summary.estimated_ms) == (case.levels[0].ms, None)
    assert (summary.speedup, summary.level) == (None, None)


def test_the_summary_has_a_row_for_each_case() -> None:
    cases = (make_case(), make_case(case=Case(batch_size=8, cores=2)))
    heads, _, *rows = summary_of(make_whatif(*cases))
    assert heads[0] == "case"
    assert [row[0] for row in rows[:2]] == [case.id for case in cases]


def test_the_summary_of_the_json_agrees_with_the_levels() -> None:
    case = make_case()
    (made,) = json.loads(dump_whatif(make_whatif(case)))["cases"]
    summary = made["summary"]
    (best,) = (level for level in made["levels"] if level["id"] == summary["level"])

    assert best["title"] == "Pruned 0.9"
    assert summary["measured_ms"] == made["levels"][0]["ms"]
    assert summary["measured_items_per_second"] == made["levels"][0]["items_per_second"]
    assert summary["estimated_ms"] == best["ms"]
    assert summary["estimated_items_per_second"] == best["items_per_second"]
    assert summary["speedup"] == best["speedup"]


# -- layers outside of the engine


def test_a_layer_that_was_outside_on_either_side_has_no_speedup() -> None:
    case = make_case()
    counted = case.baseline.counted
    layer = next(layer for layer in known(counted).layers if layer.op_type == "MatMul")
    unchanged = replace(case.levels[0], outside=(layer.id,))
    outside = replace(case, levels=(unchanged, *case.levels[1:4]))

    view = WhatIfView(times=View.SPEEDUP)
    text = render_whatif(make_whatif(outside), view, PLAIN)
    (row,) = (line for line in text.splitlines() if line.startswith(layer.name))
    rows = csv.DictReader(StringIO(render_whatif_csv(make_whatif(outside))))
    found = [row for row in rows if row["name"] == layer.id]

    assert "x" not in row.split(layer.weight or "?")[1]
    assert "outside of the accelerated engine: no speedup" in text
    assert {(row["outside"], row["speedup"]) for row in found} == {("yes", "")}
