"""A tuning as text, JSON and a page, and its options as code that creates the session."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime as ort
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.files.documents import read_table
from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Bars, Code, Rows, Section
from pytest_modelperf.report.page import PageStyle, TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.tuning.pasted import dump_tuning, engine_options_table, session_code
from pytest_modelperf.tuning.records import OptionSet, Tried, TunedCase, Tuning, TuningLimits
from pytest_modelperf.tuning.report import tuning_report
from tests.support.known import known
from tests.support.markup import Markup
from tests.support.tunings import (
    FACTS,
    make_tried,
    make_tuned_case,
    make_tuning,
    nothing_helps,
    option_sets,
)

MADE = dt.datetime(2026, 1, 31, tzinfo=dt.timezone.utc)
EVIL = "a\x1b[31mb\nc\u202ed"


def render_tuning(tuning: Tuning, style: PageStyle) -> str:
    return render_report(tuning_report(tuning), style)


def test_a_tuning_on_a_terminal() -> None:
    assert render_tuning(make_tuning(), TextStyle(80)) == snapshot("""\
net.onnx
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.32.0: CPUExecutionProvider, session.force_spinning_stop=1

options tried
options                       speedup     interval  rounds
────────────────────────────────────────────────────────────────────────
fast_math=1                     x1.90  1.80 … 2.00       9  not the same
graph_optimization_level=all    x1.40  1.30 … 1.50       9  faster
enable_mem_pattern=0            x0.80  0.75 … 0.86       9  slower
late=1                                                      not tried
no_such=1                                                   not possible
faster, slower: shown, by more than 2 %; no gain: shown to gain less than 2 %;
open: not decided

fast_math=1: its outputs differ by 25 % of their largest value, allowed 0.1 %
no_such=1: onnxruntime has no session option 'no_such'

better: graph_optimization_level=all, x1.41 (1.35 … 1.47), in 9 fresh rounds,
  each side in processes of its own (99 % for all that is said here)
the same within what can be seen: execution_mode=sequential

               now       best
─────────────────────────────
p50 ms       14.00      10.00
load ms      30.00      45.00
memory   1.907 MiB  976.6 KiB

in Python
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 2
options.inter_op_num_threads = 1
options.add_session_config_entry("session.force_spinning_stop", "1")
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
session = ort.InferenceSession(
    "net.onnx",
    options,
    providers=["CPUExecutionProvider"],
)

in pyproject.toml
[tool.modelperf.engine_options]
graph_optimization_level = "all"

note: there was no time for late=1: --max-seconds makes more

how: 36 rounds in 61.2 s: each set of options in turn with the model as it runs
     now; the best once more in fresh processes. One error level of 1 % is
     shared by all of them
""")


def test_a_single_round() -> None:
    (tried,) = nothing_helps().tried
    case = replace(nothing_helps(), tried=(replace(tried, rounds=1),), confirmations=())
    assert "how: 1 round in 61.2 s" in render_tuning(make_tuning(case), TextStyle(100))


def test_without_a_winner_the_excluded_gain_is_shown() -> None:
    text = render_tuning(make_tuning(nothing_helps()), TextStyle(100))
    for sentence in (
        "nothing is shown to help (99 %)",
        "no set of options above gains more than 1.3 %",
        "enable_mem_pattern=0 looked faster, and 35 fresh rounds did not confirm it: x1.01 (0.98 …",
    ):
        assert sentence in text
    assert "pyproject.toml" not in text


def test_a_gain_that_too_few_rounds_confirm_asks_for_more_time() -> None:
    case = nothing_helps()
    (doubted,) = case.confirmations
    doubted = replace(doubted, speedup=Ratio(1.39, None, None), rounds=4)
    text = render_tuning(make_tuning(replace(case, confirmations=(doubted,))), TextStyle(160))
    assert "looked faster, and 4 fresh rounds are too few to confirm it: x1.39; a larger" in text


def test_the_gain_that_is_excluded_is_not_that_of_sets_that_may_not_be_recommended() -> None:
    """The table has one above that is faster with other outputs, and one that did not run."""
    other = make_tuned_case().tried[2]
    for more in (other, Tried(option_set=other.option_set)):
        case = nothing_helps()
        case = replace(case, tried=(*case.tried, more))
        text = render_tuning(make_tuning(case), TextStyle(100))
        assert "no set of options that ran and may be recommended gains more than 1.3 %" in text


def test_without_a_winner_the_gain_that_would_have_been_seen_is_shown() -> None:
    case = replace(nothing_helps(), most_gain=None, detectable=0.07)
    assert "a gain of 7.0 % by one of them" in render_tuning(make_tuning(case), TextStyle(100))


def test_a_baseline_beyond_the_limits_is_named() -> None:
    limits = TuningLimits(latency_ms=12.0, memory_bytes=1_500_000)
    text = render_tuning(make_tuning(limits=limits), TextStyle(100))
    assert "as it runs now, its median is 14.00 ms, above 12 ms" in text
    assert "as it runs now, it takes 1.907 MiB of memory, above 1.431 MiB" in text


@pytest.mark.parametrize("others", [{}, {"tried": (), "confirmations": ()}])
def test_a_case_that_failed_has_its_reason_alone(others: dict[str, Any]) -> None:
    failed = make_tuned_case(failure="it does not load", **others)
    text = render_tuning(make_tuning(failed), TextStyle(100))
    assert "b1-c2: it does not load" in text
    assert "options tried" not in text
    assert ("how:" in text) is (not others)


def test_the_document_has_all_that_was_tried_and_what_to_paste() -> None:
    (case,) = json.loads(dump_tuning(make_tuning()))["cases"]
    standings = [each["standing"] for each in case["tried"]]
    assert standings == ["slower", "faster", "faster", None, None]
    assert case["tried"][2]["outputs_verdict"] == "regressed"
    assert case["winner"]["options"] == {"graph_optimization_level": "all"}
    assert case["winner"]["costs"] == {"p50_ms": 10.0, "load_ms": 45.0, "memory_bytes": 1_000_000}
    assert "ORT_ENABLE_ALL" in case["winner"]["python"]
    assert (case["phase"], case["prompt"], case["generate"]) == (None, None, None)
    (other,) = json.loads(dump_tuning(make_tuning(nothing_helps())))["cases"]
    assert other["winner"] is None
    step = Case(1, 2, phase=GenerationPhase(Phase.STEP, prompt=16, generate=8))
    (case,) = json.loads(dump_tuning(make_tuning(make_tuned_case(case=step))))["cases"]
    assert (case["phase"], case["prompt"], case["generate"]) == ("step", 16, 8)


def test_the_page_says_without_scripts_what_the_terminal_says() -> None:
    page = Markup(render_page(tuning_report(make_tuning(), MADE))).text
    for text in (
        "faster b1-c2 graph_optimization_level=all, x1.41 (1.35 … 1.47), in 9 fresh rounds",
        "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL",
        "[tool.modelperf.engine_options]",
        "its outputs differ by 25 %",
        "not tried",
    ):
        assert text in page


def test_the_page_has_a_bar_for_every_set_that_ran_the_fastest_first() -> None:
    (section,) = tuning_report(make_tuning()).blocks
    assert isinstance(section, Section)
    bars = section.blocks[0]
    assert isinstance(bars, Bars)
    assert [bar.texts[1] for bar in bars.bars] == ["x1.90", "x1.40", "x0.80"]
    assert bars.bars[0].interval == pytest.approx((0.9, 1.0))
    assert bars.bars[0].allowed == pytest.approx(0.5)
    assert [bar.note for bar in bars.bars] == ["", "the best", ""]


def test_only_the_fastest_of_many_sets_have_a_bar() -> None:
    case = make_tuned_case()
    many = tuple(
        Tried(option_set=OptionSet({"a": f"{n}"}), speedup=Ratio(1 + n, None, None))
        for n in range(30)
    )
    (section,) = tuning_report(make_tuning(replace(case, tried=many))).blocks
    assert isinstance(section, Section)
    bars, _, table, *_ = section.blocks
    assert isinstance(bars, Bars)
    assert isinstance(table, Rows)
    assert [bar.title for bar in bars.bars] == [f"a={n}" for n in range(29, 19, -1)]
    assert len(table.table.rows) == 30


def test_a_page_begins_with_what_failed_and_then_the_best_options_and_how_to_use_them() -> None:
    failed = TunedCase(case=Case(8, 2), failure="it does not load")
    report = tuning_report(make_tuning(cases=(nothing_helps(), make_tuned_case(), failed)))
    found = {(each.word, each.title): each for each in report.findings}
    assert next(iter(found)) == ("failed", "b8-c2")
    assert found["failed", "b8-c2"].sentence == "it does not load"
    assert found["faster", "b1-c2"].sentence.startswith("graph_optimization_level=all, x1.41 (1.35")
    codes = [each.text for each in found["faster", "b1-c2"].blocks if isinstance(each, Code)]
    option = "graph_optimization_level=all"
    assert codes == [
        '[tool.modelperf.engine_options]\ngraph_optimization_level = "all"',
        f"modelperf profile net.onnx --engine-option {option} --batch 1 --cores 2",
    ]
    assert isinstance(report.blocks[0], Bars)
    assert [bar.title for bar in report.blocks[0].bars] == ["b1-c2"]


def test_a_tuning_that_decided_nothing_says_how_to_give_it_more_time() -> None:
    short = replace(nothing_helps(), most_gain=None, given={"a": "b c"})
    (finding,) = tuning_report(make_tuning(short)).findings
    (code,) = (each for each in finding.blocks if isinstance(each, Code))
    assert code.text == (
        "modelperf tune net.onnx --engine-option 'a=b c' --batch 1 --cores 2 --max-seconds 245"
    )
    decided = tuning_report(make_tuning(nothing_helps())).findings[0]
    assert not any(isinstance(each, Code) for each in decided.blocks)


def test_a_set_that_is_not_decided_is_unsure() -> None:
    (options,) = option_sets("a=1")
    tried = make_tried(options, Standing.OPEN, Ratio(1.01, 0.9, 1.1))
    case = make_tuned_case(tried=(tried,), winner=None, confirmations=())
    shown = render_tuning(make_tuning(case), TextStyle(80, color=True))
    assert re.search(r"^\x1b\[33ma=1 .* open\x1b\[0m$", shown, re.MULTILINE)


def test_a_set_that_could_not_run_is_a_row_of_the_page_with_its_reason() -> None:
    (section,) = tuning_report(make_tuning()).blocks
    assert isinstance(section, Section)
    (table,) = (
        block.table
        for block in section.blocks
        if isinstance(block, Rows) and block.table.columns[-1].title == "reason"
    )
    reasons = {row[0]: row[-1] for row in table.rows}
    assert reasons["no_such=1"] == "onnxruntime has no session option 'no_such'"
    assert reasons["fast_math=1"].startswith("its outputs differ by 25 %")


def test_no_name_steers_a_terminal_or_a_page() -> None:
    case = make_tuned_case()
    tried = tuple(replace(each, failure=EVIL, refusal=EVIL) for each in case.tried)
    evil = make_tuning(replace(case, tried=tried, notes=(EVIL,), equals=(EVIL,)))
    evil = replace(evil, model=replace(evil.model, name=EVIL))
    text = render_tuning(evil, TextStyle(60))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\u202e" not in render_page(tuning_report(evil))


def run_code(code: str, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401  # of a runtime
    """The options that the code makes, as the runtime has them."""
    made: list[Any] = []

    def session(model: str, options: Any, providers: list[Any]) -> None:  # noqa: ANN401  # likewise
        made.append(SimpleNamespace(model=model, options=options, providers=providers))

    monkeypatch.setattr(ort, "InferenceSession", session)
    exec(code, {})  # noqa: S102  # it is what a user pastes
    return made[0]


def test_the_code_sets_every_option_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "session.force_spinning_stop": "1", "graph_optimization_level": "basic",
        "execution_mode": "parallel", "inter_op_num_threads": "2", "enable_cpu_mem_arena": "0",
        "use_deterministic_compute": "true", "execution_order": "PRIORITY_BASED",
        "session.intra_op.allow_spinning": "0", "provider": "CUDA", "provider.use_tf32": "0",
    }  # fmt: skip
    providers = ("CUDAExecutionProvider", "CPUExecutionProvider")
    facts = replace(FACTS, options=options, providers=providers)
    code = known(session_code(facts, 'a "b".onnx', 4))
    made = run_code(code, monkeypatch)
    assert made.model == 'a "b".onnx'
    assert made.providers == [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]
    assert made.options.intra_op_num_threads == 4
    assert made.options.inter_op_num_threads == 2
    assert made.options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    level = made.options.graph_optimization_level
    assert level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert made.options.enable_cpu_mem_arena is False
    assert made.options.use_deterministic_compute is True
    assert made.options.execution_order == ort.ExecutionOrder.PRIORITY_BASED
    spinning = made.options.get_session_config_entry("session.intra_op.allow_spinning")
    assert spinning == "0"


def test_the_code_of_openvino_compiles_the_model_with_its_properties() -> None:
    facts = EngineFacts(
        name="openvino", version="2026.4", python="3.11", options={"NUM_STREAMS": "1"}, providers=()
    )
    assert session_code(facts, "m.onnx", 2) == snapshot("""\
import openvino as ov

options = {
    "INFERENCE_NUM_THREADS": "2",
    "NUM_STREAMS": "1",
}
compiled = ov.Core().compile_model("m.onnx", "CPU", options)\
""")
    on_gpu = known(session_code(replace(facts, options={"device": "gpu"}), "m.onnx", 2))
    assert "INFERENCE_NUM_THREADS" not in on_gpu
    assert on_gpu.endswith('compile_model("m.onnx", "GPU", options)')
    assert session_code(replace(facts, name="abacus"), "m.onnx", 2) is None


def test_the_table_is_read_as_the_options_of_the_engine(tmp_path: Path) -> None:
    case = make_tuned_case(given={"session.intra_op.allow_spinning": "0"})
    path = tmp_path / "pyproject.toml"
    path.write_text(engine_options_table(case, "openvino"))
    assert read_table(path) == {
        "engine": "openvino",
        "engine_options": {
            "session.intra_op.allow_spinning": "0",
            "graph_optimization_level": "all",
        },
    }


def test_the_csv_has_a_row_for_each_set_of_options() -> None:
    assert render_csv(tuning_report(make_tuning())) == snapshot("""\
case,options,speedup,speedup_low,speedup_high,rounds,standing
b1-c2,fast_math=1,1.9,1.8,2.0,9,not the same
b1-c2,graph_optimization_level=all,1.4,1.3,1.5,9,faster
b1-c2,enable_mem_pattern=0,0.8,0.75,0.86,9,slower
b1-c2,late=1,,,,0,not tried
b1-c2,no_such=1,,,,0,not possible
""")
