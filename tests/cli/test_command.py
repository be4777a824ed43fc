"""The command: what it prints and writes, its exit codes, and one clear message for bad input."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inline_snapshot import snapshot
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import pytest_modelperf
from pytest_modelperf.cli import main
from pytest_modelperf.profiler.request import MAX_HASHED_BYTES
from pytest_modelperf.profiler.shown.tables.layer_columns import LAYER_COLUMNS
from tests.support.command import Result, environment, refusal, run, spawn
from tests.support.light_models import light_model
from tests.support.small_models import ones, parse, save_beside

LINEAR = "g (float[N,seq,3] x) => (float[N,seq,5] y) { [linear] y = MatMul(x, w) }"
RELU = "g (float[2,3] x) => (float[2,3] y) { [relu] y = Relu(x) }"
EVIL = "a\x1b[31mb\nc\u202ed\x07"
ESCAPED = r"a\x1b[31mb\nc\u202ed\x07"


def save(name: str, model: onnx.ModelProto) -> None:
    Path(name).write_bytes(model.SerializeToString())


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of small models, in which all tests here run."""
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        weights = ones(3, 5)
        weights[0] = 0
        save("linear.onnx", parse(LINEAR, weights={"w": weights}))
        save("relu.onnx", parse(RELU))
        yield path


def profiled(*arguments: str) -> dict[str, Any]:
    """The JSON of a profile of the linear model, or of the model named first."""
    result = run("profile", *arguments, "--static", "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    document: dict[str, Any] = json.loads(result.out)
    return document


LINEAR_64 = ("linear.onnx", "--dim", "seq=64")


def test_the_text_is_a_summary_a_table_of_types_and_one_of_layers() -> None:
    result = run("profile", *LINEAR_64, "--static", "--batch", "2")
    assert (result.exit_code, result.err) == (0, "")
    assert re.sub(r": \d+ B, ", ": SIZE, ", result.out) == snapshot("""\
linear.onnx: SIZE, opset 21

batch size               2
MACs               1.920 k
elementwise ops          0  an exp counts 32, an add 1
FLOPs              3.840 k  2 x MACs + elementwise
backward MACs      1.920 k  100.0 % of the MACs, in one training step
params                  15  60 B
activations      2.500 KiB  peak 2.500 KiB
layers                   1  100.0 % counted

by layer type
layer type  count     MACs  elementwise    FLOPs  FLOPs %  params    outputs
────────────────────────────────────────────────────────────────────────────
MatMul          1  1.920 k            0  3.840 k  100.0 %      15  2.500 KiB

total           1  1.920 k            0  3.840 k               15  2.500 KiB

by layer, sorted by macs
name    type       MACs    FLOPs  FLOPs %  params     memory  output
────────────────────────────────────────────────────────────────────
linear  MatMul  1.920 k  3.840 k  100.0 %      15  2.559 KiB  2x64x5

total           1.920 k  3.840 k  100.0 %      15  2.559 KiB
""")


def test_json_has_the_keys_that_others_rely_on() -> None:
    document = profiled(*LINEAR_64)
    assert document["schema"] == 1
    assert document["model"].keys() >= {"name", "path", "sha256", "bytes"}
    (case,) = document["cases"]
    assert document["machine"]
    assert case.keys() >= {
        *("id", "batch_size", "cores", "engine", "static", "latency", "load_ms"),
        *("first_inference_ms", "peak_rss_bytes", "layer_types", "layers"),
    }
    assert case["engine"].keys() >= {"name", "version", "options"}
    assert case["static"].keys() >= {
        *("macs", "elementwise_ops", "backward_macs", "params", "weight_bytes"),
        *("activation_bytes", "peak_activation_bytes", "uncounted_ops", "coverage"),
    }
    assert case["latency"].keys() >= {
        *("p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms", "min_ms", "max_ms"),
        *("mean_ms", "samples", "rounds", "items_per_second"),
    }
    (kind,) = case["layer_types"]
    assert kind.keys() >= {"op_type", "count", "ms", "share", "macs", "params"}
    (layer,) = case["layers"]
    assert layer.keys() >= {
        *("id", "op_type", "weight", "provider", "precision", "ms", "macs", "params"),
        *("input_shape", "output_shape", "fused"),
    }


def test_json_has_the_counts_and_null_for_what_was_not_measured() -> None:
    (case,) = profiled(*LINEAR_64, "--batch", "2")["cases"]
    assert (case["id"], case["batch_size"], case["cores"]) == ("b2-c1", 2, 1)
    assert case["static"]["macs"] == 2 * 64 * 3 * 5
    assert case["static"]["params"] == 15
    assert case["static"]["coverage"] == 1.0
    assert case["static"]["uncounted_ops"] == {}
    assert set(case["engine"].values()) == set(case["latency"].values()) == {None}
    assert case["load_ms"] is case["first_inference_ms"] is case["peak_rss_bytes"] is None
    (layer,) = case["layers"]
    assert (layer["id"], layer["op_type"], layer["weight"]) == ("y", "MatMul", "w")
    assert (layer["input_shape"], layer["output_shape"]) == ([2, 64, 3], [2, 64, 5])
    assert layer["ms"] is layer["provider"] is layer["sparsity"] is None


def test_json_names_the_file() -> None:
    model = profiled("relu.onnx")["model"]
    content = Path("relu.onnx").read_bytes()
    assert (model["name"], model["path"], model["bytes"]) == (
        "relu.onnx",
        "relu.onnx",
        len(content),
    )
    assert model["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_static_profile_reads_few_weights_and_none_that_are_missing(tmp_path: Path) -> None:
    path = str(tmp_path / "split.onnx")
    text = "g (float[1,64] x) => (float[1,32] y) { y = MatMul(x, w) }"
    weights = save_beside(parse(text, weights={"w": ones(64, 32)}), Path(path))
    few = profiled(path)["model"]["sha256"]
    assert len(few) == 64
    assert few != hashlib.sha256(Path(path).read_bytes()).hexdigest()
    os.truncate(weights, MAX_HASHED_BYTES)
    assert profiled(path)["model"]["sha256"] is None
    weights.unlink()
    assert profiled(path)["model"]["sha256"] is None


def test_json_and_csv_in_files_leave_the_text_on_the_terminal(tmp_path: Path) -> None:
    to_json, to_csv = tmp_path / "a.json", tmp_path / "a.csv"
    plain = run("profile", "relu.onnx", "--static")
    both = run("profile", "relu.onnx", "--static", "--json", str(to_json), "--csv", str(to_csv))
    assert both == plain
    assert json.loads(to_json.read_text())["model"]["name"] == "relu.onnx"
    assert to_csv.read_text() == snapshot("""\
case,name,type,macs,flops,params,memory,output
b2-c1,relu,Relu,0,6,0,24,2x3
""")


def test_several_cases_are_brief_unless_details_are_asked_for(tmp_path: Path) -> None:
    two = ("profile", *LINEAR_64, "--static", "--batch", "1,8")
    target = tmp_path / "report.md"
    brief = run(*two, "--markdown", str(target)).out
    assert "most expensive layer types of each case" in brief
    assert "by layer" not in brief.replace("by layer type", "")
    assert "-v shows the percentiles, counts and layers of each case" in brief
    # A file has the details of the cases, folded.
    assert "by layer, sorted by macs" in target.read_text("utf-8")
    for option in (("-v",), ("--verbose",), ("--top", "3"), ("--sort", "params")):
        shown = run(*two, *option).out
        assert "most expensive" not in shown
        assert "by layer, sorted by" in shown
    assert "by layer, sorted by" in run("profile", *LINEAR_64, "--static").out


def test_all_columns_begin_with_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("profile", *LINEAR_64, "--static", "--columns", "all", "--top", "0").out
    (head,) = (line for line in shown.splitlines() if line.startswith("name "))
    assert head.split()[:4] == ["name", "type", "MACs", "FLOPs"]
    assert "columns left out: a wider terminal shows all" in shown


def test_markdown_is_the_report_of_the_terminal() -> None:
    done = run("profile", "relu.onnx", "--static", "--markdown", "-")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out.startswith("### relu.onnx")
    assert "| <code>relu</code> | <code>Relu</code> |" in done.out


def test_the_figures_of_a_comparison_go_to_csv() -> None:
    done = run("compare", *LINEAR_64[:1], *LINEAR_64, "--static", "--csv", "-")
    assert (done.exit_code, done.err) == (0, "")
    rows = list(csv.DictReader(StringIO(done.out)))
    macs = next(row for row in rows if row["metric"] == "macs")
    assert (macs["case"], macs["before"], macs["after"], macs["verdict"]) == (
        *("b1-c1", "960", "960"),
        "passed",
    )


def test_two_documents_are_not_written_to_one_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file, again = tmp_path / "out", tmp_path / "sub" / ".." / "out"
    done = run("profile", "relu.onnx", "--static", "--json", str(file), "--csv", str(again))
    message = f"--json and --csv would both write {again}: give another file to one of them."
    assert done == (2, "", f"Error: {message}\n")
    assert not file.exists()
    # A command that keeps nothing takes any number of them.
    null = os.devnull
    assert run("profile", "relu.onnx", "--static", "--json", null, "--csv", null).exit_code == 0


def test_csv_alone_goes_to_standard_output_and_cannot_run_in_a_spreadsheet() -> None:
    result = run("profile", *LINEAR_64, "--static", "--csv", "-", "--columns", "id, macs,output")
    assert (result.exit_code, result.err) == (0, "")
    assert list(csv.reader(StringIO(result.out))) == [
        ["case", "id", "macs", "output"],
        ["b1-c1", "y", str(64 * 15), "1x64x5"],
    ]
    model = parse(RELU)
    model.graph.node[0].name = "=cmd|' /C calc'!A0"
    save("formula.onnx", model)
    out = run("profile", "formula.onnx", "--static", "--csv", "-", "--columns", "name").out
    assert list(csv.reader(StringIO(out)))[1] == ["b2-c1", "'=cmd|' /C calc'!A0"]


@pytest.mark.parametrize("name", LAYER_COLUMNS)
def test_every_column_can_be_shown_and_sorted_by(name: str) -> None:
    result = run("profile", *LINEAR_64, "--static", "--columns", name, "--sort", name)
    assert (result.exit_code, result.err) == (0, "")
    table = result.out[result.out.index(f"by layer, sorted by {name}\n") :].splitlines()
    assert table[1].strip() == LAYER_COLUMNS[name].title


def test_all_columns_can_be_shown_at_once() -> None:
    header = run("profile", *LINEAR_64, "--static", "--columns", "all").out
    line = next(line for line in header.splitlines() if line.startswith("name"))
    shown = re.split(" {2,}", line)
    assert sorted(shown) == sorted(column.title for column in LAYER_COLUMNS.values())


@pytest.mark.parametrize(("top", "rows", "hidden"), [(2, 2, 64), (0, 66, 0), (100, 66, 0)])
def test_top_limits_the_layers_and_says_how_many_are_hidden(
    top: int, rows: int, hidden: int
) -> None:
    path = str(light_model("squeezenet"))
    out = run("profile", path, "--static", "--top", str(top), "--columns", "id,macs").out
    table = out[out.index("by layer", out.index("by layer type") + 13) :]
    assert len(re.findall(r"^r\d+|^softmaxout_1", table, re.MULTILINE)) == rows
    assert (f"{hidden} more layers: --top 0" in table) == bool(hidden)


def test_layers_are_sorted_by_macs_unless_all_are_shown() -> None:
    path = str(light_model("squeezenet"))
    assert "by layer, sorted by macs" in run("profile", path, "--static").out
    whole = run("profile", path, "--static", "--top", "0").out
    assert re.search("^by layer, in graph order$", whole, re.MULTILINE)
    assert "by layer, sorted by macs" not in whole


def ids(*arguments: str) -> list[str]:
    return [case["id"] for case in profiled(*arguments)["cases"]]


def test_every_combination_is_a_case_named_by_what_varies_and_counted_at_its_sizes() -> None:
    assert ids(*LINEAR_64) == ["b1-c1"]
    assert ids(*LINEAR_64, "--batch", "1,8") == ["b1-c1", "b8-c1"]
    assert ids(*LINEAR_64, "--batch", "1,8", "--cores", "1,2") == [
        *("b1-c1", "b1-c2"),
        *("b8-c1", "b8-c2"),
    ]
    assert ids("linear.onnx", "--dim", "seq=64,128") == ["b1-c1-seq64", "b1-c1-seq128"]
    assert ids(*LINEAR_64, "--batch", "8,1") == ["b8-c1", "b1-c1"]
    cases = profiled("linear.onnx", "--dim", "seq=64,128", "--batch", "1,2")["cases"]
    assert {case["id"]: case["static"]["macs"] for case in cases} == {
        "b1-c1-seq64": 64 * 15,
        "b1-c1-seq128": 128 * 15,
        "b2-c1-seq64": 2 * 64 * 15,
        "b2-c1-seq128": 2 * 128 * 15,
    }


def test_an_input_can_be_given_whole() -> None:
    (case,) = profiled("linear.onnx", "--input", "x:f32:4x7x3")["cases"]
    assert case["static"]["macs"] == 4 * 7 * 15
    assert case["batch_size"] == 4


def test_a_value_of_an_input_decides_shapes() -> None:
    model = parse("g (float[2,3] x, int64[2] to) => (y) { r = Reshape(x, to) y = Relu(r) }")
    save("target.onnx", model)
    (case,) = profiled("target.onnx", "--input", "to:i64:2:3,2")["cases"]
    assert [layer["output_shape"] for layer in case["layers"]] == [[3, 2], [3, 2]]
    (case,) = profiled("target.onnx")["cases"]
    assert case["static"]["uncounted_ops"] == {"Relu": 1}


def test_sparsity_is_read_only_when_it_is_asked_for() -> None:
    (case,) = profiled(*LINEAR_64, "--sparsity")["cases"]
    sparsity = case["layers"][0]["sparsity"]
    assert (sparsity["zeros"], sparsity["size"]) == (5, 15)
    assert case["static"]["effective_macs"] == 64 * 10
    assert "effective MACs" in run("profile", *LINEAR_64, "--static", "--sparsity").out
    (case,) = profiled(*LINEAR_64)["cases"]
    assert case["layers"][0]["sparsity"] is case["static"]["effective_macs"] is None


@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_a_column_of_sparsity_is_reason_enough_to_read_the_weights(option: str) -> None:
    assert "effective MACs" in run("profile", *LINEAR_64, "--static", option, "sparsity").out


PLUGIN = """
from pytest_modelperf.graph.operators.cost import Cost


def modelperf_register_operators(operators):
    operators.register("my.ops::Blend", count=lambda node: Cost(elementwise_ops=1234))
"""


@pytest.mark.slow
def test_a_plugin_counts_an_operator_of_its_own() -> None:
    save("blend.onnx", parse("g (float[2,3] x) => (float[2,3] y) { y = my.ops.Blend(x) }"))
    Path("blend_ops.py").write_text(PLUGIN)
    without = spawn("profile", "blend.onnx", "--static", "--json", "-")
    assert json.loads(without.out)["cases"][0]["static"]["uncounted_ops"] == {"Blend": 1}
    result = spawn("profile", "blend.onnx", "--static", "--plugin", "blend_ops", "--json", "-")
    assert result.err == ""
    assert json.loads(result.out)["cases"][0]["static"]["elementwise_ops"] == 1234


def on_a_terminal(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Return the output of the command on a terminal of 80 columns."""
    ours, theirs = pytest.importorskip("pty").openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_modelperf", *arguments],
        stdout=theirs,
        stderr=theirs,
        env=environment({"COLUMNS": "80", **(env or {})}),
    ) as process:
        os.close(theirs)
        pieces = []
        # When its last writer closes a terminal, Linux reports an error, other systems do not.
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:
            pass
        os.close(ours)
    assert process.returncode == 0
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colour_unless_it_wants_none(
    env: dict[str, str],
    coloured: bool,  # noqa: FBT001  # pytest gives parameters by name
) -> None:
    out = on_a_terminal("profile", *LINEAR_64, "--static", env=env)
    assert ("\x1b[" in out) == coloured
    assert "MatMul" in out


def test_a_pipe_gets_no_colour() -> None:
    assert "\x1b" not in spawn("profile", *LINEAR_64, "--static").out


def test_a_pipe_that_is_closed_early_does_not_cause_an_error() -> None:
    command = f'"{sys.executable}" -m pytest_modelperf profile "$1" --static --top 0'
    for reader in ("head -1", "true"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} | {reader}", "sh", str(light_model("densenet121"))],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert done.stderr == ""
        assert done.returncode == 0


def unread(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process that prints into a pipe without a reader."""
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "pytest_modelperf", *arguments]
    try:
        return subprocess.run(
            command, stdout=theirs, stderr=subprocess.PIPE, check=False, env=environment()
        )
    finally:
        os.close(theirs)


def test_a_closed_pipe_changes_neither_the_exit_code_nor_the_files(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    done = unread("profile", "relu.onnx", "--static", "--json", str(target))
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(target.read_text())["model"]["name"] == "relu.onnx"


def test_a_closed_pipe_does_not_make_a_model_worse() -> None:
    done = unread("--help")
    assert (done.returncode, done.stderr) == (141, b"")


def test_names_are_printed_in_the_encoding_of_the_stream() -> None:
    save("größe.onnx", parse(RELU))
    out = TextIOWrapper(BytesIO(), encoding="ascii")
    with redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main(["shapes", "größe.onnx", "-o", "größe2.onnx"], prog_name="modelperf")
    assert ended.value.code == 0
    out.seek(0)
    assert out.read() == "gr\\xf6\\xdfe2.onnx: 2 of 2 tensors have a shape\n"


def test_the_module_is_the_command() -> None:
    assert spawn("--version") == (0, f"modelperf, version {pytest_modelperf.__version__}\n", "")


COMMANDS = (
    "profile", "profiles", "baselines", "compare", "bisect", "sweep", "whatif", "trace", "doctor",
    "shapes", "share", "reduce", "tune", "history", "init", "env", "worker",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_as_lines_that_can_be_copied_and_no_page_that_is_not_installed(
    command: str,
) -> None:
    result = run(command, "--help")
    assert len([x for x in result.out.splitlines() if x.startswith(f"  modelperf {command} ")]) >= 1
    assert "\b" not in result.out
    assert r"\b" not in result.out
    assert ".md" not in result.out


@pytest.mark.parametrize("command", ["profile", "compare", "sweep", "tune", "whatif"])
def test_help_groups_options_under_headings(command: str) -> None:
    text = run(command, "--help").out
    headings = ["Options:", "Sizes and inputs:", "Engine and machine:", "Measuring:", "Output:"]
    assert [line for line in text.splitlines() if line in headings] == headings
    options = {"--batch": 1, "--engine": 2, "--max-seconds": 3, "--json": 4, "--help": 0}
    parts = re.split(r"^(?:Options|Sizes and inputs|Engine and machine|Measuring|Output):$", text,
                     flags=re.MULTILINE)  # fmt: skip
    for option, place in options.items():
        assert [re.search(rf"^  (?:-\w, )?{option}\b(?!-)", part, re.MULTILINE) is not None
                for part in parts].index(True) == place + 1  # fmt: skip


def test_the_error_of_an_option_of_another_command_names_that_command() -> None:
    result = run("profile", "linear.onnx", "--streams", "2")
    assert result.exit_code == 2
    assert result.err.endswith(
        "Error: No such option '--streams'. It belongs to modelperf sweep.\n"
    )
    assert "It belongs to" not in run("profile", "linear.onnx", "--no-such-option").err


def test_the_error_of_a_misspelled_engine_suggests_the_right_name() -> None:
    assert "there is no engine 'onnxruntim'. Did you mean 'onnxruntime'? There are:" in refusal(
        "profile", "linear.onnx", "--engine", "onnxruntim"
    )


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("compare", "linear.onnx", "linear.onnx"), "a comparison"),
        (("doctor",), "a checkup"),
        (("share", "linear.onnx"), "a shared folder"),
        (("sweep", "linear.onnx"), "a sweep"),
        (("whatif", "linear.onnx"), "a what-if"),
    ],
)
def test_commands_without_functions_do_not_offer_or_accept_their_engine(
    command: tuple[str, ...], what: str
) -> None:
    assert "callable" not in run(command[0], "--help").out
    assert f"{what} takes only ONNX models: measure a Python function with" in refusal(
        *command, "--engine", "callable"
    )
    assert "callable" in run("profile", "--help").out


def test_the_list_of_commands_cuts_no_line() -> None:
    lines = run("--help").out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in lines] == sorted(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


HELP = """
from pytest_modelperf.cli import main
try: main(["profile", "--help"])
except SystemExit: pass
"""


@pytest.mark.parametrize(
    ("what", "heavy"),
    [
        (HELP, {"numpy", "onnx", "onnxruntime", "scipy", "pytest"}),
        # All that a test of counted figures needs.
        ("import pytest_modelperf.testing.checking", {"onnxruntime", "scipy"}),
    ],
    ids=["help", "counts"],
)
def test_commands_that_measure_nothing_load_no_heavy_modules(what: str, heavy: set[str]) -> None:
    script = f"import sys\n{what}\nprint(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=environment(),
    )  # fmt: skip
    assert done.stderr.strip() == "[]"


def test_a_static_profile_loads_nothing_that_only_other_uses_need() -> None:
    unwanted = {
        "blake3", "difflib", "html", "onnx.inliner", "onnxruntime", "pytest", "scipy", "secrets",
        "statistics", "pytest_modelperf.cli.compare", "pytest_modelperf.comparing",
        "pytest_modelperf.profiler.fusion", "pytest_modelperf.profiler.shown.page_data",
        "pytest_modelperf.report.picture", "pytest_modelperf.roofline",
    }  # fmt: skip
    script = (
        "import sys\nfrom pytest_modelperf.cli import main\n"
        "main(['profile', 'relu.onnx', '--static'], standalone_mode=False)\n"
        f"print(sorted({unwanted} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=environment(),
    )  # fmt: skip
    assert "relu" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.fixture(scope="module")
def broken() -> None:
    """One file for each way in which a model can be unusable."""
    base = parse(LINEAR, weights={"w": ones(3, 5)})
    data = base.SerializeToString()
    Path("empty.onnx").write_bytes(b"")
    Path("text.onnx").write_text("This is not a model.\n")
    Path("truncated.onnx").write_bytes(data[: len(data) // 2])
    # A graph (field 7) that claims 4 GiB.
    Path("claims.onnx").write_bytes(b"\x08\x0a\x3a\xff\xff\xff\xff\x0f")
    Path("pickle.onnx").write_bytes(b"\x80\x02rest")
    Path("folder.onnx").mkdir()

    model = onnx.ModelProto()
    model.CopyFrom(base)
    model.graph.initializer[0].dims[0] = 3000
    save("dims.onnx", model)

    model.CopyFrom(base)
    model.opset_import[0].version = 999
    save("opset.onnx", model)

    model.CopyFrom(base)
    model.graph.node.append(helper.make_node("Relu", ["b"], ["a"], name="first"))
    model.graph.node.append(helper.make_node("Relu", ["a"], ["b"], name="second"))
    save("cycle.onnx", model)

    for name, location in (
        ("external", "missing.bin"),
        ("outside", "../../etc/passwd"),
        ("absolute", "/etc/passwd"),
    ):
        model.CopyFrom(base)
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        save(f"{name}.onnx", model)

    for name, size in (("zero", 0), ("negative", -4), ("enormous", 2**50)):
        model = parse(RELU)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
        save(f"{name}.onnx", model)

    save("unshared.onnx", parse("g (float[3] a, float[4] b) => (c, d) { c = Relu(a) d = Relu(b) }"))
    fixed = parse(
        "g (float[2,4] x) => (float[2,4] y) { [bias] y = Add(x, b) }", weights={"b": ones(2, 4)}
    )
    save("fixed.onnx", fixed)


@pytest.mark.parametrize(
    ("arguments", "found", "advice"),
    [
        (["nowhere.onnx"], "no file nowhere.onnx", "Give the path of an ONNX model"),
        (["fixde.onnx"], "no file fixde.onnx", "Did you mean fixed.onnx?"),
        (["nowhere.onnx"], "There are: absolute.onnx,", " more. Give the path"),
        (["folder.onnx"], "folder.onnx is a folder", "Give the path of an ONNX model"),
        (["empty.onnx"], "empty.onnx is empty", "Give the path of an ONNX model"),
        (["text.onnx"], "text.onnx is not", "but a text."),
        (["truncated.onnx"], "truncated.onnx is not a complete ONNX model", "cut off"),
        (["claims.onnx"], "claims 4,294,967,295 bytes, but 0 are left", "cut off"),
        (["pickle.onnx"], "a pickle, perhaps a PyTorch checkpoint", "export the model to ONNX"),
        (["dims.onnx", "--dim", "seq=4"], "'w' of dims.onnx claims the shape [3000, 5]", "damaged"),
        (["opset.onnx"], "opset.onnx uses opset 999", "pip install --upgrade onnx"),
        (["cycle.onnx", "--dim", "seq=4"], "cycle: Relu 'first', Relu 'second'", ""),
        (["external.onnx", "--dim", "seq=4", "--sparsity"], "'missing.bin'", "next to the model"),
        (["outside.onnx", "--dim", "seq=4", "--sparsity"], "'../../etc/passwd', outside", "folder"),
        (["absolute.onnx", "--dim", "seq=4", "--sparsity"], "'/etc/passwd', outside", "folder"),
        # They are refused even if no weight is read.
        (["outside.onnx", "--dim", "seq=4"], "'../../etc/passwd', outside", "next to it"),
        (["absolute.onnx", "--dim", "seq=4"], "'/etc/passwd', outside", "next to it"),
        (
            ["linear.onnx", "--input", "x:f32:4x7x3", "--input", "x:f32:1x7x3"],
            "the input 'x' of linear.onnx is given 2 times",
            "",
        ),
        (["negative.onnx"], "a negative dimension: -4x3", "--input name:dtype:shape"),
        (["enormous.onnx"], "(1125899906842624x3)", "mistyped?"),
        (["linear.onnx", "--dim", "sq=4"], "no dimension 'sq'", "Did you mean 'seq'?"),
        (["linear.onnx", "--dim", "N=0"], "'N' cannot be 0", "give 1 or more"),
        (["linear.onnx", "--dim", "seq=-1"], "'seq=-1' cannot be read", "for example seq=64"),
        (["linear.onnx", "--dim", "seq"], "the dimension 'seq' cannot be read", "seq=64"),
        (["linear.onnx", "--dim", "seq=9999999999999"], "elements", "mistyped?"),
        ([*LINEAR_64, "--dim", "seq=5"], "--dim seq is given twice", "seq=64,128"),
        ([*LINEAR_64, "--batch", "8,8,1"], "--batch has 8 twice", "give it once"),
        ([*LINEAR_64, "--batch", "8", "--batch", "1"], "--batch is given twice", "give it once"),
        ([*LINEAR_64, "--batch", "0"], "--batch takes whole numbers of 1 or more", "not 0"),
        ([*LINEAR_64, "--batch", "two"], "not 'two'", "numbers of 1 or more"),
        ([*LINEAR_64, "--batch", ""], "not ''", "numbers of 1 or more"),
        ([*LINEAR_64, "--cores", "1,0"], "--cores takes whole numbers of 1 or more", "not 0"),
        (["unshared.onnx", "--batch", "2"], "no batch dimension", "Leave --batch out"),
        (["fixed.onnx", "--batch", "3"], "cannot run at batch 3", "leave --batch out"),
        (["linear.onnx", "--input", "x:f32"], "'x:f32' cannot be read", "ids:i64:1x64"),
        (["linear.onnx", "--input", "z:f32:2x4x3"], "no input 'z'", "There is: x"),
        (["linear.onnx", "--input", "x:i64:2x4x3"], "is float32, not int64", ""),
        (["linear.onnx", "--input", "x:f32:2x3"], "has 3 dimensions (Nxseqx3)", "2x3 is given"),
        ([*LINEAR_64, "--columns", "memroy"], "no column 'memroy'", "Did you mean 'memory'?"),
        ([*LINEAR_64, "--sort", "mcs"], "no column 'mcs'", "Did you mean 'macs'?"),
        ([*LINEAR_64, "--plugin", "no_such"], "'no_such' cannot be imported", "my_package."),
        ([*LINEAR_64, "--plugin", "json"], "'json'", "modelperf_register_operators"),
        ([*LINEAR_64, "--json", "no/such/folder.json"], "cannot write no/such/folder.json", ""),
        ([*LINEAR_64, "--csv", "folder.onnx"], "cannot write folder.onnx", ""),
        ([*LINEAR_64, "--json", "-", "--csv", "-"], "only one of --json and --csv", ""),
    ],
)
@pytest.mark.usefixtures("broken")
def test_bad_input_is_one_message(arguments: list[str], found: str, advice: str) -> None:
    result = run("profile", *arguments, "--static")
    assert result.exit_code == 2
    assert result.out == ""
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert found in result.err
    assert advice in result.err


@pytest.mark.parametrize("name", ["text", "truncated", "cycle", "enormous"])
@pytest.mark.usefixtures("broken")
def test_a_process_with_bad_input_shows_no_traceback(name: str) -> None:
    result = spawn("profile", f"{name}.onnx", "--static", "--batch", "1", "--dim", "seq=4")
    assert (result.exit_code, result.out) == (2, "")
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("broken")
def test_missing_external_data_do_not_matter_if_no_weight_is_read() -> None:
    (case,) = profiled("external.onnx", "--dim", "seq=4")["cases"]
    assert (case["static"]["macs"], case["static"]["params"]) == (4 * 15, 15)


@pytest.mark.parametrize("arguments", [["--sort", "ms"], ["--columns", "name,ms"]])
def test_a_time_cannot_be_asked_for_without_a_run(arguments: list[str]) -> None:
    message = "Error: the column 'ms' needs a run of the model: leave --static out.\n"
    assert run("profile", "relu.onnx", "--static", *arguments) == (2, "", message)


def test_an_input_that_does_not_fit_is_not_blamed_on_the_batch() -> None:
    result = run("profile", "linear.onnx", "--static", "--input", "x:f32:2x4x7")
    assert result.exit_code == 2
    assert "batch" not in result.err
    assert "'x'" in result.err
    assert "2x4x7" in result.err


@pytest.mark.parametrize(
    "source",
    [
        "def modelperf_register_operators(operators): 1 / 0",
        "def modelperf_register_operators(ops): pass",
        "1 / 0",
        "def broken(:",
    ],
)
def test_a_plugin_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    name = f"plugin_{zlib.crc32(source.encode())}"
    (tmp_path / f"{name}.py").write_text(f"{source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = run("profile", *LINEAR_64, "--static", "--plugin", name)
    assert result.exit_code == 2
    assert result.err.startswith("Error: ")
    assert name in result.err


@pytest.fixture(scope="module")
def evil() -> str:
    model = parse("g (float[N,3] x) => (float[N,5] y) { [n] y = MatMul(x, w) }")
    model.graph.node[0].name = EVIL
    model.graph.node[0].input[0] = model.graph.input[0].name = f"x{EVIL}"
    model.graph.node[0].input[1] = f"w{EVIL}"
    model.graph.initializer.append(onnx.numpy_helper.from_array(ones(3, 5), f"w{EVIL}"))
    model.graph.node[0].output[0] = model.graph.output[0].name = f"y{EVIL}"
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = f"d{EVIL}"
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = f"e{EVIL}"
    model.producer_name = f"p{EVIL}"
    model.opset_import.add(domain=f"o{EVIL}", version=1)
    save("evil.onnx", model)
    return f"e{EVIL}=3"


def is_safe(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize(
    "options",
    [["--columns", "all", "--top", "0"], ["--csv", "-", "--columns", "all"], ["--json", "-"]],
)
def test_names_are_shown_escaped(evil: str, options: list[str]) -> None:
    result = run("profile", "evil.onnx", "--static", "--sparsity", "--dim", evil, *options)
    assert result.exit_code == 0
    assert is_safe(result.out)
    if "--json" not in options:
        assert ESCAPED in result.out
    else:
        assert json.loads(result.out)["cases"][0]["layers"][0]["name"] == EVIL


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--batch", "7"],
        ["--dim", f"q{EVIL}=3"],
        ["--input", f"q{EVIL}:f32:1x3"],
        ["--input", f"x{EVIL}:i64:1x3"],
        ["--plugin", f"q{EVIL}"],
        ["--columns", f"q{EVIL}"],
        ["--json", f"no/{EVIL}"],
        ["--csv", f"no/{EVIL}"],
        ["--batch", EVIL],
    ],
)
def test_names_in_messages_are_escaped(evil: str, arguments: list[str]) -> None:
    given = ["--dim", evil] if arguments and arguments[0] not in ("--input", "--dim") else []
    result = run("profile", "evil.onnx", "--static", *given, *arguments)
    assert is_safe(result.err)
    assert is_safe(result.out)
    if result.exit_code:
        # Without a size for its dimension, the message is followed by a command with one.
        assert result.err.count("\n") == (1 if arguments else 5)
        assert ESCAPED in result.err.replace("\\\\", "\\")


def test_the_name_of_a_file_is_escaped() -> None:
    result = run("profile", f"{EVIL}.onnx", "--static")
    assert ESCAPED in result.err
    assert is_safe(result.err)


@pytest.fixture(scope="module")
def wider() -> str:
    save("wider.onnx", parse(LINEAR.replace("5", "6"), weights={"w": ones(3, 6)}))
    return "wider.onnx"


def compared(before: str, after: str) -> Result:
    return run("compare", before, after, "--static", "--dim", "seq=64")


def test_compare_shows_its_verdict_first_and_in_its_exit_code(wider: str) -> None:
    for before, after, code, verdict in (
        ("linear.onnx", "linear.onnx", 0, "passed"),
        (wider, wider, 0, "passed"),
        (wider, "linear.onnx", 0, "improved"),
        ("linear.onnx", wider, 1, "regressed"),
    ):
        done = compared(before, after)
        assert done.exit_code == code
        assert done.out.splitlines()[0] == f"{before} → {after}: {verdict}"
    assert compared("linear.onnx", "nowhere.onnx").exit_code == 2
    assert compared("linear.onnx", "relu.onnx").exit_code == 2


def test_compare_distinguishes_models_of_one_name_by_their_folders(tmp_path: Path) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "linear.onnx").write_bytes(Path("linear.onnx").read_bytes())
    markdown = tmp_path / "report.md"
    result = run(
        *("compare", str(tmp_path / "old/linear.onnx"), str(tmp_path / "new/linear.onnx")),
        *("--static", "--dim", "seq=64", "--markdown", str(markdown)),
    )
    assert result.out.startswith("old/linear.onnx → new/linear.onnx: ")
    assert markdown.read_text("utf-8").startswith("### old/linear.onnx -&#62; new/linear.onnx: ")


def test_compare_has_the_json_keys_that_others_rely_on(wider: str) -> None:
    result = run(
        "compare", "linear.onnx", wider, "--static", "--dim", "seq=64", "--batch", "1,8",
        "--json", "-",
    )  # fmt: skip
    assert (result.exit_code, result.err) == (1, "")
    document = json.loads(result.out)
    assert document.keys() >= {
        *("schema", "verdict", "seconds", "rounds", "confidence", "tolerance", "cases")
    }
    assert document["schema"] == 1
    assert document["verdict"] == "regressed"
    assert {document[key] for key in ("seconds", "rounds", "confidence", "tolerance")} == {None}
    assert [case["id"] for case in document["cases"]] == ["b1-c1", "b8-c1"]
    for case in document["cases"]:
        assert case.keys() >= {"id", "verdict", "metrics", "layer_types", "layers", "reasons"}
        for metric in case["metrics"]:
            assert metric.keys() >= {
                *("name", "before", "after", "ratio", "interval", "detectable", "verdict")
            }
    macs = next(m for m in document["cases"][1]["metrics"] if m["name"] == "macs")
    assert (macs["before"], macs["after"]) == (8 * 64 * 15, 8 * 64 * 18)
    assert macs["ratio"] == pytest.approx(1.2)
    assert macs["verdict"] == "regressed"
    assert macs["interval"] is macs["detectable"] is None


def test_compare_writes_json_in_addition_to_its_text(wider: str, tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    arguments = ("compare", "linear.onnx", wider, "--static", "--dim", "seq=64")
    result = run(*arguments, "--json", str(target))
    assert result.out.startswith("linear.onnx → wider.onnx: regressed\n")
    assert json.loads(target.read_text())["verdict"] == "regressed"


def test_shapes_writes_a_model_in_which_every_tensor_has_its_shape(tmp_path: Path) -> None:
    save("chain.onnx", parse("g (float[N,3] x) => (y) { h = Relu(x) y = Exp(h) }"))
    target = tmp_path / "shaped.onnx"
    result = run("shapes", "chain.onnx", "-o", str(target), "--batch", "8")
    assert result == (0, f"{target}: 3 of 3 tensors have a shape\n", "")
    graph = onnx.load(target).graph
    shapes = {
        info.name: [d.dim_value for d in info.type.tensor_type.shape.dim]
        for info in (*graph.input, *graph.value_info, *graph.output)
    }
    assert shapes == {"x": [8, 3], "h": [8, 3], "y": [8, 3]}


def test_shapes_shows_the_shape_of_every_tensor() -> None:
    weights = {"w": np.ones((3, 4), np.float32)}
    text = "g (float[N,3] x) => (y, z) { h = MatMul(x, w) y = Exp(h) i = NonZero(h) z = Neg(i) }"
    save("shown.onnx", parse(text, weights=weights))
    result = run("shapes", "shown.onnx", "--batch", "8")
    assert (result.exit_code, result.err) == (0, "")
    assert result.out == snapshot("""\
shown.onnx: 4 of 6 tensors have a shape

tensor  what    type     shape
──────────────────────────────
x       input   float32  8x3
w       weight  float32  3x4
h       hidden  float32  8x4
y       output  float32  8x4
i       hidden  int64    2x?
z       output  int64    2x?
""")


def test_shapes_makes_outputs_only_of_a_model_that_is_written() -> None:
    result = run("shapes", *LINEAR_64, "--names", "h")
    assert (result.exit_code, result.out) == (2, "")
    assert "--names is for the model that is written: give -o OUT" in result.err


def test_shapes_on_standard_output_names_what_it_wrote() -> None:
    """In a process of its own: a model is bytes, and goes to the stream itself."""
    save("chain.onnx", parse("g (float[2,3] x) => (y) { y = Relu(x) }"))
    command = [sys.executable, "-m", "pytest_modelperf", "shapes", "chain.onnx", "-o", "-"]
    done = subprocess.run(command, check=True, capture_output=True)
    assert onnx.load_from_string(done.stdout).graph.node[0].op_type == "Relu"
    message = "the model on standard output: 2 of 2 tensors have a shape\n"
    assert done.stderr.decode() == message


def test_shapes_names_the_tensors_that_have_none() -> None:
    save("found.onnx", parse("g (float[2, 3] x) => (y) { i = NonZero(x) y = Transpose(i) }"))
    result = run("shapes", "found.onnx", "-o", "shaped.onnx")
    assert result == (0, "shaped.onnx: 1 of 3 tensors have a shape\nwithout one: i, y\n", "")


def test_shapes_keeps_the_weights_and_makes_hidden_tensors_outputs(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = parse("g (float[N,3] x) => (y) { h = MatMul(x, w) y = Exp(h) }", weights={"w": weight})
    save("hidden.onnx", model)
    target = tmp_path / "probed.onnx"
    result = run("shapes", "hidden.onnx", "-o", str(target), "--names", "h")
    assert result.exit_code == 0
    assert result.out.endswith(", 1 more as outputs\n")
    written = onnx.load(target)
    assert [output.name for output in written.graph.output] == ["y", "h"]
    x = np.ones((1, 3), np.float32)
    _, hidden = ReferenceEvaluator(written).run(None, {"x": x})
    assert np.array_equal(hidden, x @ weight)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["linear.onnx", "-o", "out.onnx"], "a dimension without a size: 'seq'"),
        ([*LINEAR_64, "-o", "no/such/out.onnx"], "cannot write no/such/out.onnx"),
        ([*LINEAR_64, "-o", "out.onnx", "--names", "yy"], "no tensor 'yy'. Did you mean y?"),
        (["linear.onnx", "-o", "out.onnx", "--dim", "seq=1,2"], "one size of each --dim"),
        (["nowhere.onnx", "-o", "out.onnx"], "no file nowhere.onnx"),
    ],
)
def test_shapes_refuses_bad_input(arguments: list[str], found: str) -> None:
    result = run("shapes", *arguments)
    assert (result.exit_code, result.out) == (2, "")
    assert result.err.startswith("Error: ")
    assert found in result.err
    assert not Path("out.onnx").exists()


def test_exit_handlers_of_others_still_run() -> None:
    script = (
        "import atexit, runpy, sys\n"
        "atexit.register(print, 'at the end')\n"
        "sys.argv = ['modelperf', '--version']\n"
        "runpy.run_module('pytest_modelperf', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=environment(),
    )  # fmt: skip
    version, end = done.stdout.splitlines()
    assert version.startswith("modelperf, version")
    assert end == "at the end"
