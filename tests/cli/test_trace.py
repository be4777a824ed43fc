"""`modelperf trace`: its output for profiles that exist already."""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot

from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.tracing.frames import Frames
from pytest_modelperf.tracing.totals import TRACE_TOTALS
from tests.support.command import refusal, run
from tests.support.ort_profiles import (
    NESTED,
    NESTED_INPUTS,
    graph_run,
    inference,
    kernel,
    record,
    write_profile,
)
from tests.support.profiles import measured_classifier


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Twelve inferences: an operator, and a loop with one in its body; the first takes longer."""
    lines = []
    for turn in range(12):
        at, more = 1000 * turn, 100 if turn == 0 else turn
        lines += [
            kernel(
                "conv", at + 10, 200 + more, more={"op_name": "Conv", "mem_in_use_peak": "2048"}
            ),
            kernel("loop/add", at + 410, 50, more={"op_name": "Add"}),
            graph_run(at + 405, 60),
            kernel("loop", at + 400, 120, more={"op_name": "Loop"}),
            inference(at, 550 + more),
        ]
    return write_profile(tmp_path / "profile.json", lines)


def test_a_profile_is_summed_up_with_self_times(profile: Path) -> None:
    result = run("trace", str(profile))
    assert result.exit_code == 0
    assert result.err == ""
    assert result.out == snapshot("""\
profile.json  36 runs of operators  peak memory 2.000 KiB

inferences
ms               count     min    mean  median   p90    p95    p97    p99   p99.9     max
─────────────────────────────────────────────────────────────────────────────────────────
inference           12  0.5515  0.5643  0.5570  (64)  (130)  (219)  (662)  (6636)  0.6505
after the first     11  0.5515  0.5565  0.5565  (64)  (130)  (219)  (662)  (6636)  0.5615
(n): it takes n inferences to tell
40.7 % of their time is the runtime's, between the operators

by operator
operator  type  calls  total ms   share  mean ms      min      max  precision  provider
───────────────────────────────────────────────────────────────────────────────────────
conv      Conv     12     2.572  64.0 %   0.2143   0.2015   0.3005             CPU
loop      Loop     12    0.8400  20.9 %  0.07000  0.07000  0.07000             CPU
loop/add  Add      12    0.6060  15.1 %  0.05050  0.05050  0.05050             CPU
times are without what ran inside of a Loop, an If or a Scan
""")


def test_a_stored_profile_has_first_inferences_of_their_own_and_one_call_of_each_layer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(dump_profile(measured_classifier()), "utf-8")
    shown = run("trace", str(path)).out
    assert "after the first" not in shown
    assert "calls" not in shown
    assert shown == snapshot("""\
classifier.onnx b1-c1  6 runs of operators

inferences
ms               count    min   mean  median    p90    p95    p97    p99   p99.9    max
───────────────────────────────────────────────────────────────────────────────────────
first inference      6  9.400  9.400   9.400   (64)  (130)  (219)  (662)  (6636)  9.400
inference          240  6.614  6.759   6.708  6.790  6.962  7.262  (662)  (6636)  8.144
(n): it takes n inferences to tell

by operator
operator          type                     ms   share  precision  provider
──────────────────────────────────────────────────────────────────────────
stem_convolution  Conv                  6.037  90.0 %  float32    CPU
ReorderInput      layout               0.2683   4.0 %  float32    CPU
pool              GlobalAveragePool    0.1342   2.0 %  float32    CPU
runtime overhead  runtime overhead     0.1342   2.0 %
classifier        Gemm                 0.1308   1.9 %  float32    CPU
flatten           Flatten            0.003354   0.1 %  float32    CPU
times are without what ran inside of a Loop, an If or a Scan
""")


def test_types_are_added_up_and_sorted_as_asked(profile: Path) -> None:
    shown = run("trace", str(profile), "--by", "type", "--sort", "name", "--top", "2").out
    assert shown.partition("by type\n")[2] == snapshot("""\
type  calls  total ms   share  mean ms      min      max  precision  provider
─────────────────────────────────────────────────────────────────────────────
Add      12    0.6060  15.1 %  0.05050  0.05050  0.05050             CPU
Conv     12     2.572  64.0 %   0.2143   0.2015   0.3005             CPU
times are without what ran inside of a Loop, an If or a Scan
1 more took 0.8400 ms, 20.9 %; --top 0 shows all
""")


def test_json_has_all_that_is_known(profile: Path, tmp_path: Path) -> None:
    target = tmp_path / "totals.json"
    assert run("trace", str(profile), "--top", "1", "--json", str(target)).exit_code == 0
    text = target.read_text(encoding="utf-8")
    document = json.loads(text)
    read_back = msgspec.json.decode(text, type=TRACE_TOTALS.json_type)
    assert json.loads(msgspec.json.encode(read_back)) == document
    (found,) = document["traces"]
    assert document["notes"] == []
    assert [entry["name"] for entry in found["operators"]] == ["conv", "loop", "loop/add"]
    assert found["operators"][1]["calls"] == 12
    assert found["operators"][1]["total_ms"] == pytest.approx(12 * 0.070)
    assert sum(entry["share"] for entry in found["operators"]) == pytest.approx(1)
    latency = found["inferences"][0]["latency"]
    assert latency["samples"] == 12
    assert latency["p50_ms"] == pytest.approx(0.557)
    assert latency["p99.9_ms"] is None


def test_csv_has_a_row_for_each_operator_and_markdown_the_tables_of_the_terminal(
    profile: Path,
) -> None:
    rows = list(csv.DictReader(StringIO(run("trace", str(profile), "--csv", "-").out)))
    found = [(row["name"], row["type"], row["calls"]) for row in rows]
    assert found == [("conv", "Conv", "12"), ("loop", "Loop", "12"), ("loop/add", "Add", "12")]
    shown = run("trace", str(profile), "--markdown", "-").out
    assert shown.startswith("### profile.json  36 runs of operators")
    assert "| <code>loop/add</code> | Add | 12 |" in shown


def test_the_chrome_trace_has_every_span_with_its_self_time(profile: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    assert run("trace", str(profile), "--chrome", str(target)).exit_code == 0
    document = json.loads(target.read_text(encoding="utf-8"))
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 12 * 4 + 1
    loop = next(span for span in spans if span["name"] == "loop")
    assert loop["dur"] == pytest.approx(120.5)
    assert loop["args"]["self_ms"] == pytest.approx(0.070)
    assert document["otherData"]["notes"] == []


def test_a_real_profile_and_its_chrome_trace_say_the_same(tmp_path: Path) -> None:
    path = record(tmp_path, NESTED, NESTED_INPUTS, runs=4)
    target = tmp_path / "trace.json"
    result = run("trace", str(path), "--chrome", str(target), "--json", "-")
    (found,) = json.loads(result.out)["traces"]
    spans = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    operators = [span for span in spans if span.get("cat") == "operator"]
    total_ms = sum(s["args"].get("self_ms", s["dur"] / 1000) for s in operators)
    assert sum(entry["total_ms"] for entry in found["operators"]) == pytest.approx(total_ms)
    assert sum(entry["calls"] for entry in found["operators"]) == len(operators)


def test_notes_are_on_standard_error_if_something_else_goes_to_standard_output(
    profile: Path,
) -> None:
    profile.write_bytes(profile.read_bytes()[:-4])
    result = run("trace", str(profile), "--json", "-")
    note = json.loads(result.out)["notes"][0]
    assert "59 events" in note
    assert result.err.startswith(f"note: {note}")
    assert f"note: {note}" in run("trace", str(profile)).out


def test_a_stored_profile_is_summed_up_by_layer(tmp_path: Path) -> None:
    profile = measured_classifier()
    path = tmp_path / "stored.json"
    path.write_text(dump_profile(profile))
    result = run("trace", str(path), "--by", "layer", "--json", "-")
    assert result.err == ""
    (found,) = json.loads(result.out)["traces"]
    assert found["name"] == "classifier.onnx b1-c1"
    times_ns: dict[str, float] = defaultdict(float)
    for row in profile.cases[0].layers:
        times_ns["" if row.static is None else row.static.id] += row.ns or 0.0
    assert {entry["name"]: entry["total_ms"] for entry in found["operators"]} == pytest.approx(
        {layer: ns / 1e6 for layer, ns in times_ns.items() if ns}
    )
    assert {g["name"]: g["latency"]["samples"] for g in found["inferences"]} == {
        "first inference": 6,
        "inference": 240,
    }


@pytest.mark.parametrize("by", ["operator", "layer"])
def test_totals_lead_from_each_fused_layer_to_its_kernel(tmp_path: Path, by: str) -> None:
    path = tmp_path / "stored.json"
    path.write_text(dump_profile(measured_classifier()))
    (found,) = json.loads(run("trace", str(path), "--by", by, "--json", "-").out)["traces"]
    known = {each["layer"]: each["fused"] for each in found["operators"]}
    assert known["c"] == ["r"]
    assert known["logits"] == []
    rows = csv.DictReader(StringIO(run("trace", str(path), "--by", by, "--csv", "-").out))
    assert {row["layer"]: row["fused"] for row in rows}["c"] == "r"


def test_facts_that_differ_among_operators_of_a_type_are_left_out(tmp_path: Path) -> None:
    document = json.loads(dump_profile(measured_classifier()))
    for layer in document["cases"][0]["layers"]:
        if layer["id"] == "logits":
            layer["op_type"] = "Conv"
    path = tmp_path / "stored.json"
    path.write_text(json.dumps(document))
    (found,) = json.loads(run("trace", str(path), "--by", "type", "--json", "-").out)["traces"]
    (conv,) = (each for each in found["operators"] if each["name"] == "Conv")
    assert (conv["layer"], conv["fused"]) == (None, [])


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.json", [kernel("\x1b[2Jx", 1, 2), inference(0, 9)])
    result = run("trace", str(path))
    assert "\\x1b[2Jx" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: it is not a profile of ONNX Runtime"),
        ("[]", "no operator ran in it"),
        ('[{"name": "x", "ph": "X", "ts": 1, "dur": 2, "tid": 1}]', "no operator ran in it"),
        ("[\n", "no operator ran in it (the end of the file is missing"),
        ("not json", "is not a profile of ONNX Runtime"),
        (
            '{"displayTimeUnit":"ms",\n"traceEvents":[\n',
            "no operator ran in it (the end of the file is missing",
        ),
        ('{"schema": 1, "sides": []}', "it is not a profile: it is a sweep"),
        ("{", "the file ends too early"),
    ],
)
def test_a_file_that_is_not_a_profile_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content, encoding="utf-8")
    result = run("trace", str(path))
    assert result.exit_code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_trace_that_no_program_wrote_says_how_to_write_it(tmp_path: Path) -> None:
    result = run("trace", str(tmp_path / "program.json"))
    assert result.exit_code == 2
    assert "No such file" in result.err
    assert "program.json -- python program.py" in result.err
    assert "MODELPERF_TRACE alone has no effect here" in result.err


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (
            ("program.py",),
            [
                "only one FILE can be summed up, and program.py follows it",
                "two dashes: `modelperf trace -- python program.py`",
            ],
        ),
        (("--by", "layer"), ["does not show the layers of"]),
        (("--chrome", "-", "--csv", "-"), ["only one of --chrome and --csv"]),
        (("--chrome", "no/such/folder.json"), ["cannot write"]),
    ],
    ids=["a program without dashes", "no layers", "two results", "no folder"],
)
def test_contradictory_arguments_are_refused(
    profile: Path, arguments: tuple[str, ...], messages: list[str]
) -> None:
    result = run("trace", str(profile), *arguments)
    assert result.exit_code == 2
    for words in messages:
        assert words in result.err


def test_the_error_of_a_program_in_place_of_a_trace_says_how_to_trace_it(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import onnxruntime", encoding="utf-8")
    assert f"two dashes: modelperf trace -- python {path}\n" in refusal("trace", str(path))


def test_the_profile_itself_is_not_overwritten(profile: Path) -> None:
    content = profile.read_bytes()
    assert "--chrome would overwrite" in refusal("trace", str(profile), "--chrome", str(profile))
    assert profile.read_bytes() == content


def test_a_page_has_the_totals_and_the_timeline(profile: Path, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    result = run("trace", str(profile), "--html", str(page))
    assert result.exit_code == 0
    assert "by operator" in result.out
    html = page.read_text("utf-8")
    assert "<title>profile.json: trace</title>" in html
    assert '<section id="trace"' in html
    assert "by operator" in html
    # A timeline is drawn without the library of charts.
    assert 'id="plotly"' not in html
    assert run("trace", str(profile), "--html", "-").out == html


def test_the_page_of_a_trace_needs_no_library_of_charts(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert run("trace", str(profile), "--html", "-").exit_code == 0
    assert "<!doctype html>" in Frames.read(profile).html()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "--html needs jinja2: pip install" in refusal("trace", str(profile), "--html", "-")
