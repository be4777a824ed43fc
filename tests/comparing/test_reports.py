"""A comparison as a report."""

# ruff: noqa: E501  # what a wide terminal shows is wider than code

from __future__ import annotations

import csv
import json
import re
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.changes import (
    KernelCounts,
    LayerTypeChange,
    PartChange,
    StageChange,
    StageTime,
    TimeChange,
)
from pytest_modelperf.comparing.findings import figure_bars, main_parts
from pytest_modelperf.comparing.page_data import comparison_layers, comparison_types
from pytest_modelperf.comparing.records import COMPARISON, CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.comparing.tables import (
    layer_difference_table,
    layer_type_change_table,
    metric_rows,
    type_difference_table,
)
from pytest_modelperf.comparing.tables.figures import CaseView, cases_table
from pytest_modelperf.comparing.tables.times import stage_table
from pytest_modelperf.comparing.verdict_lines import describe_verdict
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.markdown import escape_markdown
from pytest_modelperf.report.model import Rows, Tone
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import display_width
from tests.support.comparisons import (
    BROKEN,
    BUDGET,
    FASTER,
    GRAPH,
    NS_PER_MS,
    OPEN,
    PASSED,
    SAME,
    SLOWER,
    change,
    compared,
    exact,
    kind,
    latency,
    with_names,
)
from tests.support.documents import assert_read_back
from tests.support.known import known
from tests.support.profiles import make_latency, make_round, static_classifier
from tests.support.rendered import (
    render_comparison,
    render_comparison_csv,
    render_comparison_markdown,
)


def text(*cases: CaseComparison, width: int | None = 80) -> str:
    return render_comparison(compared(*cases), TextStyle(width), COMMAND_WORDING)


def test_a_regression_at_80_columns() -> None:
    assert text(SLOWER) == snapshot("""\
encoder.onnx → encoder2.onnx: regressed
on onnxruntime 1.31.1

b8-c2 regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed
  +3 %; also p95 latency

metric           before        now   change         interval  allowed
────────────────────────────────────────────────────────────────────────────────
p50 latency    26.10 ms   29.18 ms  +11.8 %  +10.2 … +13.1 %     +3 %  regressed
p95 latency    27.02 ms   30.26 ms  +12.0 %   +9.1 … +14.4 %     +3 %  regressed
p90 latency    26.81 ms   29.77 ms  +11.0 %   +9.0 … +14.0 %
MACs            4.089 G    4.089 G      0 %                       0 %  passed
params          25.61 M    25.61 M      0 %                       0 %  passed
peak activa…  9.188 MiB  12.25 MiB  +33.3 %

time by layer type, in ms
layer type  count  before    now  change       interval  explains
──────────────────────────────────────────────────────────────────────────────
Conv           53   20.11  22.40   +2.29  +2.20 … +2.38      74 %  <
Relu           49       -   0.51   +0.51  +0.42 … +0.60      17 %  < was fused
Transpose   0 → 4       -   0.31   +0.31  +0.22 … +0.40      10 %  < new
MatMul          1    1.20   1.19   −0.01  −0.10 … +0.08
Add            16    2.21   2.22   +0.01  −0.08 … +0.10
layout               2.58   2.55   −0.03  −0.12 … +0.06

total               26.10  29.18   +3.08

layers that explain most, in ms
layer             before   now  change       interval  explains
──────────────────────────────────────────────────────────────────────────
layer1.0/conv2      1.31  1.92   +0.61  +0.52 … +0.70      20 %  <
layer1.0/relu          -  0.12   +0.12  +0.03 … +0.21       4 %  was fused
layer4/Transpose       -  0.11   +0.11  +0.02 … +0.20       4 %  new

why: 12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %
why: 4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %
why: no ReorderOutput kernels put in by the engine any more, 2 before: −0.03 ms
how: 9 rounds as a duet, 2.1 s
outputs: the output is equal on the same inputs
""")


def test_a_regression_at_160_columns() -> None:
    assert text(SLOWER, width=160) == snapshot("""\
encoder.onnx → encoder2.onnx: regressed
on onnxruntime 1.31.1

b8-c2 regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %; also p95 latency

metric               before        now   change         interval  allowed
────────────────────────────────────────────────────────────────────────────────────
p50 latency        26.10 ms   29.18 ms  +11.8 %  +10.2 … +13.1 %     +3 %  regressed
p95 latency        27.02 ms   30.26 ms  +12.0 %   +9.1 … +14.4 %     +3 %  regressed
p90 latency        26.81 ms   29.77 ms  +11.0 %   +9.0 … +14.0 %
MACs                4.089 G    4.089 G      0 %                       0 %  passed
params              25.61 M    25.61 M      0 %                       0 %  passed
peak activations  9.188 MiB  12.25 MiB  +33.3 %

time by layer type, in ms
layer type  count  before    now  change       interval  explains
────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
Conv           53   20.11  22.40   +2.29  +2.20 … +2.38      74 %  ████████████████████████████████████████  <
Relu           49       -   0.51   +0.51  +0.42 … +0.60      17 %  █████████                                 < was fused
Transpose   0 → 4       -   0.31   +0.31  +0.22 … +0.40      10 %  █████                                     < new
MatMul          1    1.20   1.19   −0.01  −0.10 … +0.08
Add            16    2.21   2.22   +0.01  −0.08 … +0.10
layout               2.58   2.55   −0.03  −0.12 … +0.06

total               26.10  29.18   +3.08

layers that explain most, in ms
layer             type       before   now  change       interval  explains
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
layer1.0/conv2    Conv         1.31  1.92   +0.61  +0.52 … +0.70      20 %  ████████████████████████████████████████  <
layer1.0/relu     Relu            -  0.12   +0.12  +0.03 … +0.21       4 %  ████████                                  was fused
layer4/Transpose  Transpose       -  0.11   +0.11  +0.02 … +0.20       4 %  ████████                                  new

why: 12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %
why: 4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %
why: no ReorderOutput kernels put in by the engine any more, 2 before: −0.03 ms
how: 9 rounds as a duet, 2.1 s
outputs: the output is equal on the same inputs
""")


def rows_of(case: CaseComparison) -> dict[str, str]:
    """The first and the last column of the table by layer type."""
    return {row[0]: row[-1] for row in type_difference_table(case).rows}


def one_type(op: str, before: float, after: float, share: float | None) -> LayerTypeChange:
    time = TimeChange(ns=(after - before) * NS_PER_MS, share=share)
    return LayerTypeChange(op, kind(op, 37, before), kind(op, 37, after), time)


def test_slow_types_have_a_row_and_a_small_part_of_a_small_difference_has_none() -> None:
    types = (
        one_type("Gemm", 2.0, 2.2, 0.9),
        one_type("Slice", 0.010, 0.013, 0.012),
        one_type("Sqrt", 0.010, 0.013, 0.012),
        one_type("MatMul", 6.0, 6.001, 0.005),
        one_type("Erf", 0.3, 0.29, -0.05),
    )
    case = replace(SLOWER, layer_types=types)
    assert list(rows_of(case)) == ["Gemm", "MatMul", "Erf", "2 other types"]


def test_the_heaviest_of_many_types_have_a_row_at_any_position() -> None:
    some = [one_type(f"Op{n}", 0.2, 0.2, 0.0) for n in range(14)]
    last = one_type("Conv", 9.0, 5.0, -0.9)
    rows = list(rows_of(replace(SLOWER, layer_types=(*some, last))))
    assert rows[-2:] == ["Conv", "3 other types"]
    assert len(rows) == 13


def test_a_row_whose_interval_contains_zero_is_not_a_cause() -> None:
    """It is neither among the types nor among the layers, however large it is."""
    unsure, sure = change(0.8, 0.5, width=0.81), change(0.8, 0.5, width=0.79)
    layer = SLOWER.layers[0]
    for time, mark in ((unsure, ""), (sure, "<")):
        types = (replace(SLOWER.layer_types[0], time=time),)
        case = replace(SLOWER, layer_types=types, layers=(replace(layer, time=time),))
        assert rows_of(case) == {"Conv": mark}
        assert ("layers that explain most" in text(case)) == bool(mark)


def test_a_change_within_its_noise_explains_nothing_in_any_format() -> None:
    time = change(0.8, 0.283, width=0.81)
    types = (SLOWER.layer_types[0], replace(SLOWER.layer_types[1], time=time))
    layers = (replace(SLOWER.layers[0], time=time),)
    case = replace(SLOWER, layer_types=types, layers=layers, reasons=())

    assert "28 %" not in text(case)
    assert "28 %" not in render_comparison_markdown(compared(case))
    (document,) = json.loads(COMPARISON.dump(compared(case)))["cases"]
    assert [each["explains"] for each in document["layer_types"]] == [0.74, None]
    assert document["layers"][0]["explains"] is None
    assert [each["explains"] for each in comparison_types(case, 2, None)] == [0.74, None]
    assert comparison_layers(case)[0]["explains"] is None


def test_a_difference_that_no_row_explains_alone_has_no_column_of_shares() -> None:
    time = change(0.8, 0.283, width=0.81)
    case = replace(SLOWER, layer_types=(replace(SLOWER.layer_types[0], time=time),))
    table = type_difference_table(case)
    assert "explains" not in [column.title for column in table.columns]
    assert table.caption == "every change is within the noise: no row explains the difference"


def test_times_without_any_interval_have_no_column_for_it() -> None:
    time = replace(change(0.8, 0.5), low_ns=None, high_ns=None)
    types = (replace(SLOWER.layer_types[0], time=time),)
    case = replace(SLOWER, layer_types=types, layers=(replace(SLOWER.layers[0], time=time),))
    for table in (type_difference_table(case), layer_difference_table(case, COMMAND_WORDING)):
        assert "interval" not in [column.title for column in table.columns]
    assert "interval" in [column.title for column in type_difference_table(SLOWER).columns]


def test_an_inconclusive_case_says_what_it_could_have_seen_and_what_to_do() -> None:
    head, _, rest = text(OPEN).partition("\nmetric")
    assert head.partition("\n\n")[2] == snapshot("""\
b1-c1 inconclusive: p95 latency +4.0 % (99 % interval −1.3 … +9.5 %), allowed
  +3 %
this run could see p95 latency +4.1 % or more: give more time with --max-seconds
  16
""")
    assert rest.partition("\n\ntotal ")[2] == snapshot("""\
              3.304  3.371  +0.067
the difference is within the noise: no row explains it

how: 35 rounds as a duet, 10.0 s
outputs: boxes: differ in shape: 1x100x4 before, 1x300x4 now
note: the worker was not pinned to its processors

output on the same inputs  largest difference  relative    cosine
───────────────────────────────────────────────────────────────────
logits                                3.1e-05   0.00042  1.000000
""")


def test_several_cases_begin_with_a_table_and_go_on_with_those_that_matter() -> None:
    lines = text(FASTER, SAME, BROKEN, BUDGET).splitlines()
    assert "\n".join(lines[:8]) == snapshot("""\
encoder.onnx → encoder2.onnx: over budget, 1 of 4 cases failed
on onnxruntime 1.31.1

case    verdict      decided by    p50 before   p50 now  change       interval
──────────────────────────────────────────────────────────────────────────────
b4-c1   improved                     13.41 ms  12.29 ms  −8.4 %  −9.7 … −7.0 %
b1-c2   unchanged
b64-c2  failed\
""")
    parts = [line.partition(":")[0] for line in lines[9:] if re.match(r"b\d|note", line)]
    assert parts == ["b4-c1 improved", "b64-c2 failed", "b8-c1 over budget", "note"]


def test_a_comparison_as_markdown() -> None:
    assert render_comparison_markdown(compared(SLOWER, SAME, BROKEN)) == snapshot("""\
### encoder.onnx -&#62; encoder2.onnx: regressed, 1 of 3 cases failed

- on onnxruntime 1.31.1

| case | verdict | p50 before | p50 now | change | interval | p95 | MACs | params |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| <code>b8-c2</code> | regressed | 26.10 ms | 29.18 ms | +11.8 % | +10.2 … +13.1 % | 30.26 ms | 4.089 G | 25.61 M |
| <code>b1-c2</code> | unchanged |  |  |  |  |  | 4.089 G | 25.61 M |
| <code>b64-c2</code> | failed |  |  |  |  |  | 4.089 G | 25.61 M |

**b8-c2 regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %; also p95 latency**

| metric | before | now | change | interval | allowed |  |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
| p50 latency | 26.10 ms | 29.18 ms | +11.8 % | +10.2 … +13.1 % | +3 % | regressed |
| p95 latency | 27.02 ms | 30.26 ms | +12.0 % | +9.1 … +14.4 % | +3 % | regressed |
| p90 latency | 26.81 ms | 29.77 ms | +11.0 % | +9.0 … +14.0 % |  |  |
| MACs | 4.089 G | 4.089 G | 0 % |  | 0 % | passed |
| params | 25.61 M | 25.61 M | 0 % |  | 0 % | passed |
| peak activations | 9.188 MiB | 12.25 MiB | +33.3 % |  |  |  |

- why: 12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %
- why: 4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %
- why: no ReorderOutput kernels put in by the engine any more, 2 before: -0.03 ms

<details><summary>Details</summary>

**time by layer type, in ms**

| layer type | count | before | now | change | interval | explains |  |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| <code>Conv</code> | 53 | 20.11 | 22.40 | +2.29 | +2.20 … +2.38 | 74 % | &#60; |
| <code>Relu</code> | 49 | &#45; | 0.51 | +0.51 | +0.42 … +0.60 | 17 % | &#60; was fused |
| <code>Transpose</code> | 0 -&#62; 4 | &#45; | 0.31 | +0.31 | +0.22 … +0.40 | 10 % | &#60; new |
| <code>MatMul</code> | 1 | 1.20 | 1.19 | -0.01 | -0.10 … +0.08 |  |  |
| <code>Add</code> | 16 | 2.21 | 2.22 | +0.01 | -0.08 … +0.10 |  |  |
| <code>layout</code> |  | 2.58 | 2.55 | -0.03 | -0.12 … +0.06 |  |  |
| **total** |  | **26.10** | **29.18** | **+3.08** |  |  |  |

**layers that explain most, in ms**

| layer | type | before | now | change | interval | explains |  |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |
| <code>layer1.0/conv2</code> | <code>Conv</code> | 1.31 | 1.92 | +0.61 | +0.52 … +0.70 | 20 % | &#60; |
| <code>layer1.0/relu</code> | <code>Relu</code> | &#45; | 0.12 | +0.12 | +0.03 … +0.21 | 4 % | was fused |
| <code>layer4/Transpose</code> | <code>Transpose</code> | &#45; | 0.11 | +0.11 | +0.02 … +0.20 | 4 % | new |

- how: 9 rounds as a duet, 2.1 s
- outputs: the output is equal on the same inputs

</details>

<details><summary>b1-c2 unchanged</summary>

| metric | before | now | change |  |
| --- | ---: | ---: | ---: | --- |
| MACs | 4.089 G | 4.089 G | 0 % | passed |
| params | 25.61 M | 25.61 M | 0 % | passed |
| activations | 83.92 MiB | 83.92 MiB | 0 % |  |
| peak activations | 9.188 MiB | 12.25 MiB | +33.3 % |  |

<details><summary>Details</summary>

- note: the same model, engine and options

</details>

</details>

**b64-c2 failed**

<pre>the worker was ended by SIGKILL in round 3:<br>it had 1.9 GiB of 2 GiB</pre>

| metric | before | now | change |  |
| --- | ---: | ---: | ---: | --- |
| MACs | 4.089 G | 4.089 G | 0 % | passed |
| params | 25.61 M | 25.61 M | 0 % | passed |
""")  # a row of Markdown is as long as it is


ALL = (SLOWER, OPEN, FASTER, SAME, BROKEN, BUDGET)


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for cases in (ALL, *((case,) for case in ALL)):
        lines = text(*cases, width=width).splitlines()
        assert max(map(display_width, lines)) <= width


def test_at_80_columns_no_column_is_left_out_and_no_verdict_is_cut() -> None:
    for cases in (ALL, *((case,) for case in ALL)):
        assert "left out" not in text(*cases)
    assert text(OPEN).count("inconclusive") == 3


def test_a_failed_case_is_never_called_passed() -> None:
    assert "passed" not in text(replace(BROKEN, metrics=())).splitlines()[0]
    assert text(BROKEN).splitlines()[0].endswith(": failed")
    worse = replace(BROKEN, metrics=(exact("macs", 1, 2),))
    assert text(worse).splitlines()[0].endswith(": regressed")
    assert "SIGKILL" in text(worse)


def test_an_assertion_on_a_case_shows_what_decided_it() -> None:
    assert repr(SLOWER) == "<comparison b8-c2: regressed, latency_p50 +11.8 %>"
    assert repr(BUDGET) == "<comparison b8-c1: over budget, latency_p95>"
    assert repr(SAME) == "<comparison b1-c2: unchanged>"
    assert repr(BROKEN).startswith("<comparison b64-c2: failed, the worker was ended by SIGKILL")
    assert "\x1b" not in repr(replace(BROKEN, failure="\x1b[2J"))


def test_a_case_that_could_not_be_measured_has_no_good_verdict() -> None:
    for metrics in ((), (exact("macs", 2, 2),)):
        broken = replace(BROKEN, metrics=metrics)
        assert broken.verdict is compared(broken).verdict is Verdict.INCONCLUSIVE
    worse = replace(BROKEN, metrics=(exact("macs", 1, 2),))
    assert worse.verdict is compared(worse).verdict is Verdict.REGRESSED
    assert replace(BROKEN, outcome=Verdict.NEW).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("other", "expected"),
    [(SAME, Verdict.INCONCLUSIVE), (FASTER, Verdict.INCONCLUSIVE), (SLOWER, Verdict.REGRESSED)],
)
def test_a_comparison_with_a_failed_case_is_at_best_inconclusive_in_every_report(
    other: CaseComparison, expected: Verdict
) -> None:
    comparison = compared(other, BROKEN)
    assert comparison.verdict is expected
    assert json.loads(COMPARISON.dump(comparison))["verdict"] == expected.value
    sentence = f"{expected.value}, 1 of 2 cases failed"
    assert text(other, BROKEN).splitlines()[0].endswith(f": {sentence}")
    assert sentence in render_comparison_markdown(comparison).splitlines()[0]
    assert comparison_report(comparison, COMMAND_WORDING).tone is Tone.BAD


def test_a_percentile_without_enough_samples_asks_for_more_time() -> None:
    metric = Metric("latency_p95", None, None, Verdict.INCONCLUSIVE, detectable=float("inf"))
    shown = text(replace(OPEN, metrics=(metric,)), width=160)
    assert "b1-c1 inconclusive: too few samples for the p95 latency\n" in shown
    assert "this run was too short to decide: give more time with --max-seconds" in shown


def test_a_change_too_small_for_percent_is_a_number() -> None:
    metrics = (
        exact("macs", 4_089_184_256, 4_089_184_256 + 1_500),
        exact("params", 11_159_041, 11_159_042, gated=False),
        exact("activation_bytes", 88_000_000, 87_999_996, gated=False),
    )
    shown = text(replace(SLOWER, metrics=metrics))
    for row in ("1.500 k", "+1", "−4 B"):
        assert f"  {'+' if row == '1.500 k' else ''}{row}" in shown
    assert "params: only tensors of a single value differ" in shown


def test_a_ratio_is_shown_if_the_samples_are_too_few_for_the_times() -> None:
    """A few rounds of a slow model have a ratio each, and fewer inferences than p50 takes."""
    known = latency("p50", 26.1, 26.1, PASSED, (0.946, 0.997))
    median = replace(known, before=None, after=None, measured_ratio=0.971)
    shown = text(replace(SLOWER, metrics=(median,)), width=160)
    assert "b8-c2 passed: p50 latency −2.9 % (99 % interval −5.4 … −0.3 %), allowed +3 %" in shown


def test_a_comparison_with_stored_times_is_not_called_a_duet() -> None:
    assert "how: 35 rounds against stored times" in text(replace(OPEN, how=How.STORED))


def test_only_what_is_judged_shows_what_is_allowed() -> None:
    shown = replace(SLOWER.metrics[2], allowed=0.03)
    lines = text(replace(SLOWER, metrics=(*SLOWER.metrics[:2], shown))).splitlines()
    allowed = [line for line in lines if line.startswith("p9") and "+3 %" in line]
    assert [line.split()[0] for line in allowed] == ["p95"]


def test_the_reasons_that_are_left_out_are_counted() -> None:
    shown = text(replace(SLOWER, reasons=tuple(f"reason {n}" for n in range(9))))
    assert "why: reason 5" in shown
    assert "reason 6" not in shown
    assert "and 3 more reasons, --json has them" in shown


def test_a_static_comparison_as_markdown_has_its_verdict_and_table() -> None:
    profile = static_classifier()
    shown = render_comparison_markdown(compare_profiles(profile, profile))
    assert shown.startswith("### classifier.onnx -&#62; classifier.onnx: passed\n")
    assert "| MACs | 442.5 k | 442.5 k | 0 % | passed |" in shown


def test_no_table_of_layer_types_has_a_head_and_no_row() -> None:
    profile = static_classifier()
    same = compare_profiles(profile, profile)
    shown = render_comparison(same, TextStyle(80), COMMAND_WORDING)
    assert "layer type" not in shown + render_comparison_markdown(same).casefold()


EVIL = (
    "a|b`c`<img src=x onerror=alert(1)>@someone #12 \n\n# h *b* [l](http://evil.test) \\| www.e.te"
)
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def test_a_name_is_shown_unchanged_and_obeyed_nowhere() -> None:
    tokens = MARKDOWN.parse(render_comparison_markdown(with_names(EVIL)))
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"link_open", "image", "em_open", "code_inline", "fence", "code_block"}
    html = [t.content for t in (*tokens, *inline) if t.type.startswith("html")]
    tags = set(re.findall(r"<[^>]*>", " ".join(html)))
    ours = ("code", "details", "summary", "pre")
    assert tags == {f"<{slash}{tag}>" for tag in ours for slash in ("", "/")} | {"<br>"}
    shown = "".join(t.content for t in inline if t.type in {"text", "text_special"})
    assert shown.replace("\u200b", "").count(printable(EVIL)) >= 8


@given(st.text(max_size=30))
def test_a_cell_stays_one_cell_whatever_the_name(name: str) -> None:
    line = f"| x | y |\n| --- | --- |\n| {escape_markdown(name)} | end |"
    tokens = MARKDOWN.parse(line)
    cells = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "td_open"]
    assert [cell.content == "end" for cell in cells] == [False, True]
    children = cells[0].children or []
    assert {child.type for child in children} <= {"text", "text_special"}
    shown = "".join(child.content for child in children).replace("\u200b", "")
    assert shown == printable(name).strip().replace("\u200b", "")


@given(st.text(max_size=30))
@example("12. x")
@example("1)")
@example("- x")
@example("===")
@example("+")
@example("    x")
def test_a_line_of_its_own_stays_one_line_of_text(name: str) -> None:
    tokens = MARKDOWN.parse(f"{escape_markdown(name)}\n")
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}


@pytest.mark.parametrize("name", ["@someone", "x#12", "GH-7", "who@evil.test", "mailto:a@b.test"])
def test_text_that_a_site_would_link_is_broken_by_a_zero_width_space(name: str) -> None:
    assert name not in shown_in_markdown(name)
    assert shown_in_markdown(name).replace("\u200b", "") == name


@pytest.mark.parametrize("name", ["www.evil.test", "WWW.x", "x*www.e", "http://e", "ftp://e.test"])
def test_no_link_is_left_for_a_site_that_looks_for_it_before_or_after_it_resolves_references(
    name: str,
) -> None:
    """The space is not behind the mark of a link, where it would be a part of the host."""
    for text in (escape_markdown(name), shown_in_markdown(name)):
        assert not re.search(r"www\.|://", text, re.IGNORECASE)
    assert shown_in_markdown(name).replace("\u200b", "") == name


def shown_in_markdown(name: str) -> str:
    (paragraph,) = (t for t in MARKDOWN.parse(escape_markdown(name)) if t.type == "inline")
    return "".join(child.content for child in paragraph.children or ())


def test_a_measured_comparison_as_json() -> None:
    document = json.loads(COMPARISON.dump(compared(SLOWER, BROKEN)))
    assert (document["rounds"], document["seconds"]) == (9, 2.13)
    assert (document["tolerance"], document["confidence"]) == (0.03, 0.99)
    slower, broken = document["cases"]
    assert (broken["verdict"], document["verdict"]) == (None, "regressed")
    assert broken["failure"].startswith("the worker was ended")
    p50 = slower["metrics"][0]
    assert p50["ratio"] == pytest.approx(29.18 / 26.10)
    assert {key: p50[key] for key in ("name", "before", "interval", "detectable", "allowed")} == {
        "name": "latency_p50", "before": 26.1, "interval": [1.102, 1.131], "detectable": 0.012,
        "allowed": 0.03,
    }  # fmt: skip
    assert slower["layer_types"][0] == {
        "op_type": "Conv",
        "domain": "",
        "change_ms": 2.29,
        "change_interval_ms": [2.2, 2.38],
        "explains": 0.74,
        "before": slower["layer_types"][0]["before"],
        "after": slower["layer_types"][0]["after"],
    }
    assert slower["layer_types"][0]["after"]["ms"] == 22.4
    assert slower["layer_types"][2]["before"] is None
    fused = slower["layers"][1]
    assert (fused["before"]["ms"], fused["after"]["ms"]) == (None, 0.12)
    assert fused["before"]["runs_in"] == "conv2"
    assert slower["outputs"][0]["cosine"] == 1.0


PART = PartChange(
    kernels=KernelCounts(before=1, after=7),
    before_ns=9.4e6,
    after_ns=10.2e6,
    time=TimeChange(ns=0.8e6, low_ns=0.6e6, high_ns=1.0e6),
    reasons=("1 HardSwish replaced by 7 kernels",),
)


def test_a_case_in_json_says_by_what_it_was_judged() -> None:
    ways = [*How, None]
    cases = [replace(SLOWER, how=how) for how in ways]
    found = json.loads(COMPARISON.dump(compared(*cases)))["cases"]
    assert [case["how"] for case in found] == ["plan", "parts", "duet", "stored", None]


def test_the_parts_of_a_case_are_in_its_json() -> None:
    unknown = replace(PART, time=TimeChange(ns=PART.time.ns), reasons=())
    cases = (replace(SLOWER, how=How.PARTS, parts=(PART, unknown)), SLOWER)
    parts, whole = json.loads(COMPARISON.dump(compared(*cases)))["cases"]
    assert parts["parts"] == [
        {
            "kernels": {"before": 1, "after": 7},
            "before_ms": 9.4,
            "after_ms": 10.2,
            "change_ms": 0.8,
            "interval_ms": [0.6, 1.0],
            "reasons": ["1 HardSwish replaced by 7 kernels"],
        },
        {
            "kernels": {"before": 1, "after": 7},
            "before_ms": 9.4,
            "after_ms": 10.2,
            "change_ms": 0.8,
            "interval_ms": None,
            "reasons": [],
        },
    ]
    assert whole["parts"] == []


def test_both_sides_ran_in_turn_only_as_wholes_or_parts() -> None:
    assert {how for how in (*How, None) if replace(SLOWER, how=how).is_duet} == {
        How.DUET,
        How.PARTS,
    }
    by_parts = text(replace(SLOWER, how=How.PARTS))
    assert "how: 9 rounds as a duet of the parts that changed, 2.1 s" in by_parts
    assert "how: 9 rounds alone, 2.1 s" in text(replace(SLOWER, how=How.PLAN))


def test_a_model_that_ran_alone_by_its_plan_has_no_time_before() -> None:
    """`?` would say that it ran, and that its samples are too few."""
    time = Metric("latency_p50", None, 3.1, PASSED, allowed=0.03, measured_ratio=1.0)
    shown = text(replace(SAME, outcome=None, how=How.PLAN, metrics=(time, *GRAPH), rounds=1))
    assert "?" not in shown
    assert "3.100 ms" in shown


def test_a_latency_of_fewer_inferences_than_a_median_needs_is_marked_as_an_estimate() -> None:
    few, many = (make_latency([make_round([40_000_000] * n)], batch_size=2) for n in (3, 12))
    views = [
        CaseView(name=name, word="passed", compared=SAME, latency=each)
        for name, each in (("few", few), ("many", many))
    ]

    assert [(view.now("latency_p50"), view.rate) for view in views] == [
        ("~40.00 ms", "~50.00"),
        ("40.00 ms", "50.00"),
    ]
    assert cases_table(views).caption == "~: the mean of fewer runs than a median needs"
    assert not cases_table(views[1:]).caption


def test_the_parts_that_changed_are_shown_with_their_figures() -> None:
    part = PartChange(
        kernels=KernelCounts(before=1, after=9),
        before_ns=100_000.0,
        after_ns=124_000.0,
        time=TimeChange(ns=24_000.0, low_ns=10_000.0, high_ns=29_000.0),
        reasons=("1 LayerNormalization became 9 kernels (2 Add, Mul, ...)",),
    )
    elsewhere = TimeChange(ns=-200.0, low_ns=-90_000.0, high_ns=80_000.0)
    case = replace(SLOWER, how=How.PARTS, parts=(part,), elsewhere=elsewhere)
    shown = text(replace(case, layers=()), width=160)
    assert "allowed +3 %, in 9 kernels that changed" in shown
    assert (
        "part: 1 LayerNormalization became 9 kernels (2 Add, Mul, ...): +0.024 ms "
        "(+0.010 … +0.029 ms), measured in place"
    ) in shown
    assert "elsewhere: 0.000 ms (−0.090 … +0.080 ms), by the whole model" in shown
    # If layers were timed, the reasons name the parts.
    assert "part: " not in text(case, width=160)


@pytest.mark.parametrize("limit", [None, 20.0])
def test_only_the_change_of_the_median_is_one_of_the_parts(limit: float | None) -> None:
    """Parts judge no load, and no budget, which is about the whole model."""
    name = "load_ms" if limit is None else "latency_p50"
    verdict = Verdict.REGRESSED if limit is None else Verdict.OVER_BUDGET
    over = Metric(name, None, 30.0, verdict, limit=limit)
    median = latency("p50", 26.1, 26.2, PASSED, (0.99, 1.02))
    shown = text(replace(SLOWER, how=How.PARTS, metrics=(median, over)))
    assert verdict.value in shown
    assert "that changed" not in shown.partition("metric")[0]


def test_the_csv_of_a_case_says_by_what_it_was_judged() -> None:
    rows = csv.DictReader(StringIO(render_comparison_csv(compared(SLOWER, SAME))))
    assert {(row["case"], row["how"]) for row in rows} == {("b8-c2", "duet"), ("b1-c2", "")}


def test_figures_that_are_not_judged_have_no_verdict_in_the_csv() -> None:
    shown = replace(SLOWER.metrics[0], gated=False)
    rows = csv.DictReader(
        StringIO(render_comparison_csv(compared(replace(SLOWER, metrics=(shown,)))))
    )
    assert [(row["verdict"], row["gated"]) for row in rows] == [("", "False")]
    rows = csv.DictReader(StringIO(render_comparison_csv(compared(SLOWER))))
    assert {(row["verdict"] != "", row["gated"]) for row in rows} <= {
        (True, "True"),
        (False, "False"),
    }


def test_a_comparison_of_which_every_case_failed_has_no_verdict() -> None:
    assert json.loads(COMPARISON.dump(compared(BROKEN)))["verdict"] is None
    rows = csv.DictReader(StringIO(render_comparison_csv(compared(BROKEN))))
    assert {row["case_verdict"] for row in rows} == {""}


def test_no_number_in_json_is_infinite() -> None:
    metric = replace(SLOWER.metrics[0], detectable=float("inf"), interval=(0.0, float("inf")))
    case = replace(SLOWER, metrics=(metric,))
    (found,) = json.loads(COMPARISON.dump(compared(case)))["cases"]
    assert found["metrics"][0]["detectable"] is None
    assert found["metrics"][0]["interval"] == [0.0, None]


def test_the_json_of_a_comparison_is_read_back_by_its_type() -> None:
    comparison = compared(*ALL, replace(SLOWER, how=How.PARTS, parts=(PART,)))
    assert_read_back(COMPARISON.dump(comparison), COMPARISON)


def test_a_tail_that_lacks_samples_has_a_row_only_if_it_was_asked_for() -> None:
    unknown = Metric(
        "latency_p95", None, None, Verdict.INCONCLUSIVE, allowed=0.1, awaited=False,
        samples_needed=130, rounds_needed=15,
    )  # fmt: skip
    limited = replace(unknown, name="latency_p99", awaited=True, limit=5.0)
    case = replace(OPEN, metrics=(OPEN.metrics[0], unknown, limited, *GRAPH), outputs=())
    shown = text(case, width=150)
    assert "p95 latency" not in shown
    assert re.search(r"^p99 latency +\? .* inconclusive$", shown, re.MULTILINE)
    passed = replace(case, metrics=(OPEN.metrics[0], unknown))
    assert "tail: p95 not decided: too few samples, about 15 rounds would decide" in text(passed)


def test_a_figure_that_is_not_decided_has_its_word_and_a_legend() -> None:
    load = Metric(
        "load_ms", 7.3, 8.5, Verdict.INCONCLUSIVE, interval=(0.9, 1.4), allowed=0.15, awaited=False
    )
    shown = text(replace(SLOWER, metrics=(*SLOWER.metrics, load)), width=80)
    assert re.search(r"^load .* not decided$", shown, re.MULTILINE)
    assert shown.count("not decided: it may be worse or not") == 1
    assert "not decided:" not in text(SLOWER, width=80).partition("load")[0]


def test_each_row_of_figures_has_the_tone_of_its_verdict() -> None:
    slower, open_tail = SLOWER.metrics[0], replace(OPEN.metrics[1], awaited=False)
    faster = replace(slower, verdict=Verdict.IMPROVED)
    seen = replace(slower, gated=False)
    rows = metric_rows(replace(SLOWER, metrics=(slower, faster, open_tail, seen)))
    assert rows.tones == (Tone.BAD, Tone.GOOD, Tone.UNSURE, Tone.PLAIN)
    assert [row[-1] for row in rows.table.rows] == ["regressed", "improved", "not decided", ""]
    assert rows.table.columns[-1].is_verdict


def test_the_change_of_an_operator_that_cannot_be_counted_is_unknown() -> None:
    unknown = replace(kind("Foo", 1, None), macs=None, elementwise_ops=None)
    changes = (
        LayerTypeChange("Foo", None, unknown),
        LayerTypeChange("Bar", replace(unknown, op_type="Bar", macs=5), None),
    )
    rows = layer_type_change_table(replace(SAME, layer_types=changes)).rows
    assert [row[2:6] for row in rows] == [("-", "?", "?", "?"), ("5", "-", "-5", "?")]


_MS = 1_000_000.0


def _time(ms: float) -> StageTime:
    return StageTime(calls=1, ns=ms * _MS)


def test_only_a_session_that_was_not_judged_did_the_same_work() -> None:
    longer = TimeChange(ns=2 * _MS, low_ns=_MS, high_ns=3 * _MS, share=1.0)
    same = StageChange(name="m.onnx", kind="session", before=_time(5), after=_time(5))
    stages = (
        same,
        StageChange(name="new.onnx", kind="session", before=None, after=_time(1), is_judged=True),
        StageChange(
            name="rest",
            kind="rest",
            before=_time(1),
            after=_time(3),
            time=longer,
            is_judged=True,
        ),
        StageChange(name="decode", kind="label", before=_time(1), after=_time(3)),
        StageChange(name="1", kind="input", before=_time(6), after=_time(9)),
    )
    table = stage_table(CaseComparison(Case(1, 1), (), (), stages=stages))
    marks = {row[0]: row[-1] for row in table.rows}
    assert marks == {
        "m.onnx": "same work",
        "new.onnx": "< new",
        "rest": "<",
        "label decode": "",
        "input 1": "",
    }


def test_a_verdict_names_the_judged_stages_that_differ() -> None:
    noise = TimeChange(ns=0.1 * _MS, low_ns=-_MS, high_ns=_MS)
    longer = TimeChange(ns=2 * _MS, low_ns=_MS, high_ns=3 * _MS)

    def shown(rest: TimeChange) -> str:
        stages = tuple(
            StageChange(
                name=name,
                kind="session",
                before=_time(1),
                after=_time(2),
                time=time,
                is_judged=True,
            )
            for name, time in (("m.onnx", noise), ("rest of the program", rest))
        )
        case = replace(SLOWER, how=How.PARTS, stages=stages, metrics=SLOWER.metrics[:1])
        return describe_verdict(case, None).partition(", in ")[2]

    assert shown(longer) == "rest of the program"
    assert shown(noise) == "m.onnx and rest of the program"


def test_each_judged_figure_that_can_change_has_bars_on_one_scale() -> None:
    bars = figure_bars(SLOWER).bars
    assert [bar.title for bar in bars] == ["p50 latency", "p95 latency"]
    first = bars[0]
    before, after = first.lengths
    assert before is not None
    assert known(after) / before == pytest.approx(29.18 / 26.10)
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
def test_figures_without_a_length_have_no_bars(after: float | None) -> None:
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
