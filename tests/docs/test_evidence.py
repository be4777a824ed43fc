"""The figures of the docs are those that are stored, and say of them what they say."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import evidence
import expected
import measuring
import overhead
import pytest
import results
import scale
import shown
import startup
import static
import upgrade
import verdicts
from evidence import BENCHMARKS, PAGES, Benchmark
from expected import Expectation
from hypothesis import given, settings
from hypothesis import strategies as st
from results import Moment, Result, ResultError
from runs import Run

from tests.support.checkout import ROOT

EVIDENCE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
# A number with what it counts: a measured figure, if it is not one of these.
FIGURE = re.compile(r"\d[\d.,]*(?: ?(?:%|ms|us|µs|ns|s|min|x|times|MB|GB)(?!\w)| of \d+)")
ASKED = {"5 %", "40 %", "95 %"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
rows_of_kinds = st.dictionaries(
    st.text(), st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3), max_size=3
)


def result_of(rows: results.Rows, benchmark: str = "verdicts", **changes: object) -> Result:
    whole: dict[str, object] = {
        "benchmark": benchmark,
        "command": f"python benchmarks/{benchmark}.py",
        "date": "2026-11-22T03:00:00+00:00",
        "seconds": 90.0,
        "is_complete": True,
        "before": {"load": 0.1, "loop_ms": 2.0},
        "after": {"load": 1.2, "loop_ms": 2.5},
        "machine": {"cpu": "A processor", "usable_cores": 2, "system": "Linux"},
        "versions": {"python": "3.11.7", "onnx": "1.23.2"},
        "rows": rows,
    }
    return results.from_json(whole | changes)


def outcomes(expected: tuple[Expectation, ...]) -> list[str]:
    return [each.outcome for each in expected]


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    return evidence.blocks_of(evidence.stored_results())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_what_is_stored(page: Path, blocks: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- evidence: " in text
    written = evidence.render_page(page.name, text, blocks)
    assert text == written, "type: python benchmarks/evidence.py --tables"


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_every_benchmark_has_a_document_as_it_was_written(benchmark: Benchmark) -> None:
    result = results.load(benchmark.stored)
    assert result.benchmark == benchmark.name
    assert results.dump(result) == benchmark.stored.read_text(encoding="utf-8")
    assert benchmark.module.expectations(result)


def test_every_stored_document_belongs_to_a_benchmark() -> None:
    """A document without a benchmark would be shown by no page and made again by no command."""
    stored = {path.stem for path in results.FOLDER.glob("*.json")}
    assert stored == {benchmark.name for benchmark in BENCHMARKS}


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_every_table_of_a_benchmark_can_be_shown_with_its_machine(
    benchmark: Benchmark,
) -> None:
    result = results.load(benchmark.stored)
    text = evidence.shown(benchmark)
    for table in benchmark.module.tables(result).values():
        assert table in text
    assert results.expectation_table(benchmark.module.expectations(result)) in text
    assert text.endswith(results.conditions(result))


def test_results_that_are_not_stored_cannot_be_shown() -> None:
    with pytest.raises(
        ResultError, match=r"no result of unknown is stored\. Type: .*--only unknown"
    ):
        evidence.shown(Benchmark("unknown", "?", quick=""))


def test_the_page_of_the_benchmarks_describes_each_and_says_when_and_on_what_it_ran() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    at_a_glance, _, _ = page.partition("<!-- end -->")
    for benchmark in BENCHMARKS:
        assert f"\n`python benchmarks/{benchmark.name}.py" in page
        (row,) = re.findall(rf"^\| `{benchmark.name}` \|.*$", at_a_glance, re.MULTILINE)
        assert row.endswith(f"| {results.short_conditions(results.load(benchmark.stored))} |")


def test_the_text_of_a_page_outside_its_blocks_has_no_figures() -> None:
    """Measured figures are in blocks; the arguments of a measurement may be in the prose."""
    _, _, believe = README.partition("## Why trust it\n")
    believe, _, _ = believe.partition("\n## ")
    assert believe
    for text in (EVIDENCE, believe):
        prose = re.sub(r"<!-- evidence: .+?<!-- end -->", "", text, flags=re.DOTALL)
        assert set(FIGURE.findall(" ".join(prose.split()))) <= ASKED
    assert FIGURE.findall("0 of 100 in 2.3 s, 1.5x") == ["0 of 100", "2.3 s", "1.5x"]


@settings(max_examples=40)
@given(rows=rows_of_kinds, is_complete=st.booleans())
def test_a_document_is_read_as_it_was_written(rows: results.Rows, is_complete: bool) -> None:  # noqa: FBT001  # hypothesis gives it by name
    result = result_of(rows, is_complete=is_complete)
    assert results.from_json(json.loads(results.dump(result))) == result


def test_a_document_has_a_line_for_each_row() -> None:
    result = result_of({"models": [{"name": "a", "ns": [1, 2]}, {"name": "b"}], "none": []})
    lines = results.dump(result).splitlines()
    assert '   {"name": "a", "ns": [1, 2]},' in lines
    assert '   {"name": "b"}' in lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, r"Expected `object`, got `array` - at `\$\.rows`"),
        ({"rows": {"answers": 1}}, r"Expected `array`, got `int` - at `\$\.rows"),
        ({"seconds": "90"}, r"got `str` - at `\$\.seconds`"),
        ({"before": {"load": 1}}, "loop_ms"),
        ({"date": "yesterday"}, "yesterday"),
        ({"more": 1}, "expected the keys"),
    ],
)
def test_a_document_of_another_form_is_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    document = json.loads(results.dump(result_of({})))
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(document | change))
    with pytest.raises(ResultError, match=message) as refused:
        results.load(path)
    assert f"python benchmarks/verdicts.py --json {path}" in str(refused.value)


def test_the_path_of_a_result_does_not_belong_to_what_was_measured() -> None:
    given = ["--aa", "3", "--json", "f", "--folder=g", "--quiet", "--json=f"]
    assert measuring.without_paths(given) == ("--aa", "3", "--quiet")
    started = measuring.Start.now("verdicts", ("--cores", "1,2", "--json", "/somewhere/f.json"))
    assert started.command == "python benchmarks/verdicts.py --cores 1,2"


def test_a_result_names_its_machine_load_and_versions() -> None:
    assert results.conditions(result_of({}, machine={"cpu": "A processor", "usable_cores": 1})) == (
        "2026-11-22, `python benchmarks/verdicts.py`, 90 s: A processor, 1 core, load 0.1 before "
        "and 1.2 after, a fixed loop 2.0 and 2.5 ms; python 3.11.7, onnx 1.23.2."
    )
    assert results.short_conditions(result_of({})) == "2026-11-22, A processor, 2 cores"


def test_a_time_is_shown_in_a_suitable_unit() -> None:
    found = [shown.format_ns(ns) for ns in (88.4, 9_999, 10_000, 940_000, 1_764_938)]
    assert found == ["88 ns", "9,999 ns", "10.0 µs", "940.0 µs", "1.76 ms"]
    assert shown.format_ns(-20_000, "+") == "-20.0 µs"
    assert shown.format_ns(300, "+") == "+300 ns"


def test_a_run_keeps_the_facts_of_the_machine_and_not_its_builder() -> None:
    found = measuring.Start.now("overhead", ()).finish({"models": []}, peers=("pytest",))
    assert found.versions["pytest"] == pytest.__version__
    assert found.versions["python"]
    assert found.machine["usable_cores"] >= 1
    assert not {"kernel", "python", "packages"} & found.machine.keys()
    assert found.before.loop_ms > 0
    assert results.from_json(json.loads(results.dump(found))).machine == found.machine


def test_a_block_is_written_between_its_marks() -> None:
    page = "a\n<!-- evidence: one -->\nold\n\n<!-- end -->\n<!-- output: b -->\nc\n<!-- end -->\n"
    assert evidence.render_page("p.md", page, {"one": "new"}) == page.replace("old\n\n", "new\n")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- evidence: soak by noise -->\n<!-- end -->", "Type: .* --only soak$"),
        ("<!-- evidence: one -->\n", "no <!-- end -->"),
        ("<!-- evidence: one -->\n<!-- evidence: one -->\n<!-- end -->", "no <!-- end -->"),
    ],
)
def test_a_page_with_a_block_that_cannot_be_written_is_refused(page: str, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        evidence.render_page("p.md", page, {"one": "new"})


def test_the_summary_names_what_was_missed_and_what_was_not_shown() -> None:
    expected = (
        Expectation("alarms", "none", "0", is_met=True),
        Expectation("found", "all", "3 of 4", is_met=False),
        Expectation("added", "1 %", "0 to 2 %", is_met=None),
        Expectation("more", "1 s", "2 s", is_met=False),
        Expectation("again", "1 s", "2 s", is_met=False),
    )
    text = evidence.summary({"verdicts": result_of({})}, {"verdicts": expected})
    (row,) = text.splitlines()[2:]
    assert row == (
        "| `verdicts` | how often is a verdict right, against two other methods? | 1 of 5 | "
        "found: 3 of 4 (missed); more: 2 s (missed); and 2 more "
        "| 2026-11-22, A processor, 2 cores |"
    )


PROGRAM = """
import sys
path = sys.argv[sys.argv.index("--json") + 1]
if "--broken" in sys.argv:
    open(path, "w").write("{")
elif "--fails" in sys.argv:
    sys.exit("no peer")
else:
    open(path, "w").write(open("document").read())
sys.exit(int("--missed" in sys.argv))
"""


@pytest.fixture
def programs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder of programs, of results, and of one page."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    monkeypatch.setattr(evidence, "PROGRAMS", tmp_path)
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(evidence, "PAGES", (tmp_path / "page.md",))
    (tmp_path / "page.md").write_text("")
    (tmp_path / "document").write_text(results.dump(result_of({})))
    return tmp_path


def program(folder: Path, name: str, form: str) -> tuple[Benchmark, str]:
    (folder / f"{name}.py").write_text(PROGRAM)
    return Benchmark(name, "?", quick=form, usual=form, full=form), form


def test_one_that_cannot_run_stops_no_other_and_keeps_what_is_stored(
    programs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = [program(programs, "first", "--fails"), program(programs, "second", "--missed")]
    (programs / "results").mkdir()
    (programs / "results" / "first.json").write_text(results.dump(result_of({}, seconds=120.0)))
    assert evidence.store(plan) == 1
    printed = capfd.readouterr()
    assert "no peer" in printed.err
    assert "error: first could not run, it ended with 1." in printed.err
    assert "type: python benchmarks/evidence.py --only first" in printed.err
    assert "second" not in printed.err
    assert results.load(programs / "results" / "first.json").seconds == 120.0
    assert results.load(programs / "results" / "second.json") == result_of({})


def test_a_file_that_is_not_a_document_is_not_stored(
    programs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert evidence.store([program(programs, "first", "--broken")]) == 1
    assert "first.json: Expecting property name" in capfd.readouterr().err
    assert not (programs / "results" / "first.json").exists()


def test_an_interrupted_result_is_kept_until_it_has_ended(programs: Path) -> None:
    """The folder is outside of the checkout, in which pytest would find our own settings."""
    _, form = program(programs, "first", "--fails")
    benchmark = Benchmark("first", "?", quick=form, usual=form, full=form)
    assert programs not in benchmark.unfinished.parents
    benchmark.unfinished.mkdir(parents=True)
    assert evidence.store([(benchmark, form)]) == 1
    assert benchmark.unfinished.exists()
    assert evidence.store([(benchmark, "")]) == 0
    assert not benchmark.unfinished.exists()


def test_after_an_interrupt_the_command_to_go_on_is_shown(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = [program(programs, name, "") for name in ("first", "second", "third")]
    run_one = evidence.run

    def interrupted(benchmark: Benchmark, *rest: Any) -> str | None:  # noqa: ANN401  # handed on
        if benchmark.name == "second":
            raise KeyboardInterrupt
        return run_one(benchmark, *rest)

    monkeypatch.setattr(evidence, "run", interrupted)
    assert evidence.store(plan) == 130
    assert capsys.readouterr().err.endswith("To go on: --only second third\n")
    assert results.load(programs / "results" / "first.json") == result_of({})


def test_small_forms_are_not_stored(programs: Path) -> None:
    benchmark, _ = program(programs, "first", "")
    assert evidence.show_quick([benchmark]) == 0
    assert not (programs / "results").exists()


def test_a_long_one_runs_if_it_is_named_or_all_are_asked_for() -> None:
    short, long = Benchmark("a", "?", "q", "u", "f"), Benchmark("b", "?", "q", None, "f")
    plan = evidence.plan_runs
    assert plan([short, long], full=False, named=False) == [(short, "u")]
    assert plan([short, long], full=False, named=True) == [(short, "u"), (long, "f")]
    assert plan([short, long], full=True, named=False) == [(short, "f"), (long, "f")]


def answers(way: str, change: str, said: str, machine: str = "quiet") -> dict[str, object]:
    """A row of verdicts: one letter for each answer, each in a second more than the one before."""
    words = {"r": "regressed", "p": "passed", "i": "improved", "o": "inconclusive"}
    return {
        "machine": machine,
        "cores": 1,
        "change": change,
        "way": way,
        "answers": [words[letter] for letter in said],
        "seconds": [1.0 + index for index in range(len(said))],
    }


COMPARED = result_of(
    {
        "answers": [
            answers(verdicts.DUET, "A/A", "pppo"),
            answers(verdicts.PEER, "A/A", "pprr"),
            answers(verdicts.RANKS, "A/A", "prrr"),
            answers(verdicts.DUET, "+5 %", "rrr"),
            answers(verdicts.PEER, "+5 %", "rrp"),
            answers(verdicts.RANKS, "+5 %", "rrr"),
            answers(verdicts.DUET, "+5 %", "oor", "40 % taken"),
        ]
    }
)


def test_the_short_table_of_verdicts_has_a_line_for_each_setting() -> None:
    table, _, text = verdicts.tables(COMPARED)["verdicts short"].partition("\n\n")
    assert table.splitlines()[2:] == [
        (
            "| as it is | 1 | no change | 0 of 4 alarms, 1 inconclusive | 2.5 s "
            "| 2 of 4 alarms | 3 of 4 alarms |"
        ),
        "| as it is | 1 | +5 % | 3 of 3 found | 2.0 s | 2 of 3 found | 3 of 3 found |",
        "| 40 % taken | 1 | +5 % | 1 of 3 found, 2 inconclusive | 2.0 s | - | - |",
    ]
    assert text == (
        "Of 4 comparisons of a model with its like 0 raised an alarm, which shows the rate of "
        "false alarms to be at most 53 % (95 % confidence). Of 6 slower models 4 were found, 2 "
        "called inconclusive and 0 passed. pytest-benchmark's gate raised an alarm in 2 of 4, "
        "found 2 of 3 and passed the others. The Mann-Whitney test raised an alarm in 3 of 4, "
        "found 3 of 3 and passed the others."
    )


def test_among_verdicts_only_those_of_the_duet_have_expectations() -> None:
    expected = verdicts.expectations(COMPARED)
    assert [(each.what, each.found, each.outcome) for each in expected] == [
        ("no change, called slower or faster", "0 of 4", "met"),
        ("slower, called not slower", "0 of 6", "met"),
        ("+5 % on one core, machine as it is: found", "3 of 3", "met"),
        ("A/A on one core, machine as it is: median", "2.5 s", "missed"),
        ("+5 % on one core, machine as it is: median", "2.0 s", "met"),
    ]
    wrong = result_of(
        {"answers": [answers(verdicts.DUET, "A/A", "ri"), answers(verdicts.DUET, "+5 %", "pi")]}
    )
    expected = verdicts.expectations(wrong)
    assert [each.found for each in expected[:3]] == ["2 of 2", "2 of 2", "0 of 2"]
    assert outcomes(expected) == ["missed"] * 3 + ["met"] * 2
    assert "0 were found, 0 called inconclusive and 2 passed" in verdicts.totals(
        wrong.read("answers", verdicts.Group)
    )


def test_the_rate_that_no_alarm_shows_is_that_of_the_rule_of_three() -> None:
    assert expected.highest_rate(0, 100) == pytest.approx(1 - 0.05**0.01)
    assert expected.highest_rate(100, 100) == 1.0


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.99, 1.005, "met"), (0.99, 1.02, "not shown"), (1.02, 1.03, "missed")],
)
def test_an_expectation_that_an_interval_leaves_open_is_neither_met_nor_missed(
    low: float, high: float, outcome: str
) -> None:
    """The inference takes 1 ms, so that 1 % is more than 300 ns."""
    row = {"name": "m", "median_ns": 1e6, "ratio": low, "low": low, "high": high, "blocks": 9}
    assert outcomes(overhead.expectations(result_of({"models": [row]}))) == [outcome]


def test_a_short_inference_may_take_some_nanoseconds_more() -> None:
    row = {"name": "m", "median_ns": 1e4, "ratio": 1.02, "low": 1.01, "high": 1.029, "blocks": 9}
    assert outcomes(overhead.expectations(result_of({"models": [row]}))) == ["met"]


def test_a_plugin_that_loads_something_heavy_is_reported() -> None:
    rows: results.Rows = {
        "pairs": [{"loaded_ms": 101.0, "blocked_ms": 100.0}] * 8,
        "imports": [
            {"run": "with the plugin", "heavy": ["numpy"], "ours": 9},
            {"run": "-p no:modelperf", "heavy": [], "ours": 0},
        ],
        "commands": [{"static_ms": 150, "imports_ms": 100, "help_ms": 90, "nothing_ms": 10}] * 8,
    }
    added, heavy, static, asked = startup.expectations(result_of(rows))
    assert (added.found, added.outcome) == ("+1.0 ms (95 % interval +1.0 to +1.0)", "met")
    assert (heavy.found, heavy.outcome) == ("numpy", "missed")
    assert (static.found, static.outcome) == ("1.50 (1.50 to 1.50)", "missed")
    assert (asked.found, asked.outcome) == ("80 ms (80 to 80)", "met")


def test_all_misses_and_the_worst_hit_of_large_graphs_are_shown() -> None:
    took = {"slow": (10, 40), "heavy": (20, 41), "light": (5, 6), "lighter": (3, 3)}
    rows = [
        {"graph": "chain", "nodes": nodes, "command": command, "own_seconds": seconds,
         "own_peak_bytes": 1_000_000}
        for command, both in took.items()
        for nodes, seconds in zip((10_000, 20_000), both, strict=True)
    ]  # fmt: skip
    expected = scale.expectations(result_of({"commands": rows}))
    assert [(each.what, each.found, each.outcome) for each in expected] == [
        ("twice as much, chain: slow", "4.00 times", "missed"),
        ("twice as much, chain: heavy", "2.05 times", "met"),
        ("chain of 20,000 nodes: heavy", "41.0 s", "missed"),
        ("chain of 20,000 nodes: slow", "40.0 s", "missed"),
        ("chain of 10,000 nodes: heavy", "20.0 s", "met"),
        ("any command: memory of our own", "1 MB", "met"),
    ]


def upgraded(
    seconds: float = 170.0,
    found_seconds: float = 0.0,
    reduced: dict[str, object] | None = None,
) -> list[str]:
    """The outcomes of an upgrade: of the bisect, a kept environment, and the reduction."""
    halving = {
        "versions": 12, "steps": 6, "verdict": "regressed", "last_good": "1.1", "first_bad": "1.2",
        "seconds": seconds,
    }  # fmt: skip
    compared = {
        "version": "1.2", "p50_ms": 1.0, "ratio": 1.1, "low": 1.0, "high": 1.2, "confidence": 0.99,
        "verdict": "regressed", "rounds": 9, "found_seconds": found_seconds,
    }  # fmt: skip
    rows: results.Rows = {
        "bisect": [halving],
        "upgrades": [compared],
        "reduction": [] if reduced is None else [{"verdict": "", "ratio": None, **reduced}],
    }
    return outcomes(upgrade.expectations(result_of(rows)))


def test_a_bisect_of_twelve_releases_is_held_to_three_minutes() -> None:
    assert upgraded(170.0, 0.02)[:2] == ["met", "met"]
    assert upgraded(190.0, 0.2)[:2] == ["missed", "missed"]


@pytest.mark.parametrize(
    ("reduced", "expected"),
    [
        ({"kernels": 2, "repro": 1.2, "seconds": 30.0}, ["met", "met"]),
        ({"kernels": 8, "repro": 0.9, "seconds": 30.0}, ["missed", "missed"]),
        ({"kernels": 2, "repro": 1.2, "seconds": 90.0}, ["missed", "met"]),
        ({"kernels": None, "repro": None, "seconds": 30.0}, ["missed", "missed"]),
        (None, ["not shown", "not shown"]),
    ],
)
def test_a_slowdown_by_an_upgrade_is_reduced_to_three_kernels(
    reduced: dict[str, object] | None, expected: list[str]
) -> None:
    assert upgraded(reduced=reduced)[2:] == expected


def run(seconds: float, macs: int | None = None, error: str | None = None) -> dict[str, object]:
    unknown = dict.fromkeys(field.name for field in fields(Run))
    taken = {"process_seconds": seconds, "call_seconds": seconds, "import_peak_bytes": 0}
    return {**unknown, **taken, "peak_bytes": 10, "macs": macs, "params": 9, "error": error}


def test_the_static_profile_is_held_to_its_counts_and_to_its_peer() -> None:
    """Alexnet's MACs are right and its params are not; of the traps one is."""
    light = {
        "model": "bvlc_alexnet",
        "size_bytes": 9,
        "pairs": [{"ours": run(1.0, 654_560_384), "theirs": run(2.0)}],
    }
    many = {**light, "model": "many", "pairs": [{"ours": run(1.0), "theirs": run(9.0)}]}
    names = ("RNN", "Einsum of three operands")
    rows: results.Rows = {
        "light": [light],
        "light again": [light],
        "many nodes": [many],
        "large": [],
        "traps": [
            {"name": name, "ours": run(1.0, 280), "theirs": run(1.0, error="KeyError: 1")}
            for name in names
        ],
    }
    result = result_of(rows, "static")
    assert [(each.what, each.found, each.outcome) for each in static.expectations(result)] == [
        ("many: profile call", "9.00x", "missed"),
        ("many: whole process", "9.00x", "missed"),
        ("the slowest light model: profile call", "2.00x", "met"),
        ("the slowest light model: whole process", "2.00x", "met"),
        ("the same, a model profiled before: profile call", "2.00x", "met"),
        ("small models counted right", "1 of 2", "missed"),
        ("light models counted right", "0 of 1", "missed"),
    ]
    renamed = {**rows, "traps": [{**rows["traps"][0], "name": "of old"}]}
    with pytest.raises(ResultError, match="no longer has of old"):
        static.tables(result_of(renamed, "static"))
    short = static.tables(result)["static short"]
    assert short.endswith("onnx_tool counts 0 right and this tool 1.")
    assert "| RNN | MACs | 280 | 280 | **KeyError** |" in static.tables(result)["static counts"]


def test_a_moment_is_what_the_machine_says_of_itself() -> None:
    now = Moment.now()
    assert now.load is None or now.load >= 0
    assert Moment(None, 1.0).load_text == "unknown"
    assert now.loop_ms > 0


def test_the_stored_verdicts_include_the_peer() -> None:
    """It also runs without the peer, which would leave the pages without its rows."""
    stored = json.loads((results.FOLDER / "verdicts.json").read_text("utf-8"))
    assert "pytest-benchmark" in json.dumps(stored["rows"])
