"""The report and the document of a bisect, made by hand."""

# ruff: noqa: E501  # lines of a report are wide

from __future__ import annotations

import json

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.bisect.records import (
    BISECT,
    Bisect,
    BisectFigure,
    Judged,
    LeftOut,
    RangeKind,
    VersionRange,
)
from pytest_modelperf.bisect.report import bisect_report
from pytest_modelperf.bisect.search import Question, SearchRule, find_regressions
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Code
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.text.words import display_width
from tests.support.bisects import TableJudge, Traits, make_versions
from tests.support.report_parts import commands_of, tables_of

EVIL = "a\x1b[31mb\nc\u202ed"


def bisected(
    times: list[float], *, finds_all: bool = False, traits: Traits | None = None
) -> Bisect:
    versions = make_versions(len(times))
    rule = SearchRule(finds_all=finds_all)
    judge = TableJudge(versions, times, traits or Traits())
    return Bisect(
        model="models/encoder.onnx",
        engine="engine",
        case="b1-c1",
        range=VersionRange(RangeKind.RELEASES, versions, (LeftOut("1.3rc1", "no final release"),)),
        search=find_regressions(versions, judge, rule, lambda: 0.0),
        tolerance=rule.tolerance,
        level=rule.level,
        seconds=61.0,
    )


def shown(bisect: Bisect, width: int | None = None) -> str:
    return render_report(bisect_report(bisect, COMMAND_WORDING), TextStyle(width))


def test_the_answer_comes_first_and_every_step_has_a_row() -> None:
    found = bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"}))
    assert shown(found) == snapshot("""\
models/encoder.onnx b1-c1 on engine: slower since engine 1.5 or a version before it
1.3: 0 % (99.82 % interval −0.5 … +0.5 %) against 1.0; 1.5: +10.0 % (99.82 % interval +9.5 … +10.5 %) against 1.0
1.4 between them could not be judged: the step may be there, too
1.5: +10.0 % (99.82 % interval +9.5 … +10.5 %) against 1.3

step  version  answer  against       p50   change        interval   limit  rounds  time
───────────────────────────────────────────────────────────────────────────────────────
   1  1.8      bad     1.0      2.200 ms  +10.0 %  +9.5 … +10.5 %  +3.0 %           0 s
   2  1.4      failed  1.0                                         +4.9 %           0 s
   3  1.3      good    1.0      2.000 ms      0 %   −0.5 … +0.5 %  +4.9 %           0 s
   4  1.5      bad     1.0      2.200 ms  +10.0 %  +9.5 … +10.5 %  +4.9 %           0 s
   5  1.5      bad     1.3      2.200 ms  +10.0 %  +9.5 … +10.5 %  +3.0 %           0 s

1.4 failed: there is no wheel of 1.4

What to do next
measure 1.3 → 1.5 again: modelperf compare models/encoder.onnx models/encoder.onnx --requirement-a engine==1.3 --requirement-b engine==1.5 --engine engine
stay at 1.3: pip install engine==1.3

note: not tried: 1.3rc1 (no final release)
note: other regressions in the range were not looked for: --all finds them
note: 5 steps in 61 s; the chance of any wrong answer is at most 1 %
""")


def test_several_regressions_are_all_named() -> None:
    found = bisected([2.0, 2.0, 2.2, 2.2, 2.2, 2.5, 2.5], finds_all=True)
    assert shown(found).splitlines()[:5] == snapshot(
        [
            "models/encoder.onnx b1-c1 on engine: slower since engine 1.2, engine 1.5",
            "1.1: 0 % (99.97 % interval −0.5 … +0.5 %) against 1.0; 1.2: +10.0 % (99.97 % interval +9.5 … +10.5 %) against 1.0",
            "1.2: +10.0 % (99.97 % interval +9.5 … +10.5 %) against 1.1",
            "1.4: +10.0 % (99.89 % interval +9.5 … +10.5 %) against 1.0; 1.5: +25.0 % (99.89 % interval +24.4 … +25.6 %) against 1.0",
            "1.5: +13.6 % (99.89 % interval +13.1 … +14.2 %) against 1.4",
        ]
    )


@pytest.mark.parametrize(
    ("times", "open_always", "headline"),
    [
        (
            [2.0, 2.5, 2.01],
            set[str](),
            "engine 1.2 is not slower than 1.0: +0.5 % (99.7 % interval −0.0 … +1.0 %), allowed +3 %",
        ),
        (
            [2.0, 2.0, 1.5],
            set[str](),
            "engine 1.2 is faster than 1.0: −25.0 % (99.7 % interval −25.4 … −24.6 %), allowed +3 %",
        ),
        (
            [2.0, 2.0, 2.5],
            {"1.2"},
            "inconclusive: whether engine 1.2 is slower than 1.0 is not decided: +25.0 % (99.7 % interval +24.4 … +25.6 %), allowed +3 %",
        ),
    ],
)
def test_ends_that_are_not_slower_are_the_answer(
    times: list[float], open_always: set[str], headline: str
) -> None:
    found = shown(bisected(times, traits=Traits(open_always=open_always)))
    assert found.splitlines()[0] == f"models/encoder.onnx b1-c1 on engine: {headline}"


def test_ends_that_are_neighbours_are_compared_and_reported_once() -> None:
    text = shown(bisected([2.0, 2.2]))
    assert text.count("1.1: +10.0 % ") == 1


def test_several_small_steps_are_reported_as_such() -> None:
    assert shown(bisected([2.0 * 1.02**n for n in range(6)])).splitlines()[1:3] == snapshot(
        [
            "1.2: +4.0 % (99.82 % interval +3.5 … +4.6 %) against 1.0; 1.3: +6.1 % (99.82 % interval +5.6 … +6.7 %) against 1.0",
            "1.3: +2.0 % (99.82 % interval +1.5 … +2.5 %) against 1.2; that is not shown to be more than +3 %, so the time grew in several versions",
        ]
    )


def test_a_version_that_stays_open_is_named() -> None:
    text = shown(bisected([2.0] * 3 + [2.2] * 2, traits=Traits(open_always={"1.2"})))
    assert [line for line in text.splitlines() if "1.2" in line] == snapshot(
        [
            "1.2 between them could not be judged: the step may be there, too",
            "   2  1.2      inconclusive  1.0      2.000 ms      0 %   −0.5 … +0.5 %  +4.9 %           0 s",
            "note: still inconclusive with more time: 1.2; --max-seconds gives each step more",
        ]
    )


@pytest.mark.parametrize("width", [80, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = shown(bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"})), width)
    assert max(map(display_width, text.splitlines())) <= width


def test_names_of_strangers_steer_no_terminal_and_no_page() -> None:
    found = bisected([2.0, 2.2])
    versions = tuple(replace(each, label=EVIL, title=EVIL) for each in found.range.versions)
    evil = TableJudge(versions, [2.0, 2.2])
    found = replace(
        found,
        model=EVIL,
        range=replace(found.range, kind=RangeKind.COMMITS, versions=versions),
        search=find_regressions(versions, evil, SearchRule()),
    )
    page = render_page(bisect_report(found, COMMAND_WORDING))
    for text in (shown(found), BISECT.dump(found), page):
        assert "\x1b" not in text
        assert "\u202e" not in text


def next_steps(bisect: Bisect) -> dict[str, str]:
    """The commands that the report advises, by their purpose."""
    return commands_of(bisect_report(bisect, COMMAND_WORDING))


def test_a_page_begins_with_each_version_and_what_to_type_next() -> None:
    found = bisected([2.0, 2.0, 2.2, 2.2, 2.2, 2.5, 2.5], finds_all=True)
    report = bisect_report(found, COMMAND_WORDING)
    assert report.counts == "2 of 7 releases made it slower"
    assert [(each.word, each.title) for each in report.findings] == [
        ("slower", "engine 1.2"), ("slower", "engine 1.5"),
    ]  # fmt: skip
    assert report.findings[1].sentence == "against 1.4: +13.6 % (99.89 % interval +13.1 … +14.2 %)"
    codes = [each.text for each in report.findings[1].blocks if isinstance(each, Code)]
    assert codes[1] == "pip install engine==1.4"


@pytest.mark.parametrize(
    ("times", "open_always", "command"),
    [
        ([2.0, 2.0], set[str](), "--tolerance 0.015"),
        ([2.0, 2.1], {"1.1"}, "--max-seconds 60"),
        ([2.0, 1.5], set[str](), None),
    ],
)
def test_a_page_of_a_bisect_that_found_nothing_says_why_and_what_to_type(
    times: list[float], open_always: set[str], command: str | None
) -> None:
    found = bisected(times, traits=Traits(open_always=open_always))
    report = bisect_report(found, COMMAND_WORDING)
    (finding,) = report.findings
    assert finding.sentence == report.headline
    codes = [each.text for each in finding.blocks if isinstance(each, Code)]
    searches = [text for text in codes if text.startswith("modelperf bisect")]
    again = f"modelperf bisect models/encoder.onnx --good 1.0 --bad 1.1 --package engine --engine engine {command}"
    assert searches == ([] if command is None else [again])


def test_a_step_that_failed_is_a_row_of_the_page_with_its_reason() -> None:
    found = bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"}))
    table = tables_of(bisect_report(found, COMMAND_WORDING))[1]
    assert {row[1]: row[-1] for row in table.rows}["1.4"] == "there is no wheel of 1.4"


def test_the_report_advises_to_install_the_last_good_release() -> None:
    steps = next_steps(bisected([2.0, 2.0, 2.2, 2.2]))
    assert steps["stay at 1.1"] == "pip install engine==1.1"


def test_the_report_repeats_the_case_and_the_engine_that_were_bisected() -> None:
    found = replace(bisected([2.0, 2.0, 2.2, 2.2]), options={"hint": "LATENCY"})
    case = Case(8, 2, (("seq", 64),), given_dims=(("seq", 64),))
    ends = found.search.ends
    assert ends.judged is not None
    judged = replace(ends.judged, comparison=CaseComparison(case, (), ()))
    found = replace(found, search=replace(found.search, ends=replace(ends, judged=judged)))
    assert next_steps(found)["measure 1.1 → 1.2 again"] == (
        "modelperf compare models/encoder.onnx models/encoder.onnx --requirement-a engine==1.1 "
        "--requirement-b engine==1.2 --engine engine --engine-option hint=LATENCY "
        "--batch 8 --cores 2 --dim seq=64"
    )


def test_only_a_bisect_by_times_advises_more_time() -> None:
    found = bisected([2.0, 2.0, 2.2], traits=Traits(open_always={"1.1"}))
    advised = "--max-seconds gives each step more"
    assert advised in shown(found)
    assert advised not in shown(replace(found, judges=BisectFigure.OUTPUTS))


def test_a_range_of_two_versions_has_no_other_regressions_to_look_for() -> None:
    pair, longer = bisected([2.0, 2.2]), bisected([2.0, 2.2, 2.2])
    assert "--all" not in shown(pair)
    assert "--all" in shown(longer)


def test_csv_has_plain_numbers_for_each_step() -> None:
    times, outputs = (
        render_csv(bisect_report(found, COMMAND_WORDING))
        for found in (bisected([2.0, 2.2]), bisected_by_outputs([0.0, 0.031]))
    )
    assert times == snapshot("""\
step,version,title,answer,against,before_ms,after_ms,ratio,low,high,outputs,allowed,rounds,seconds
1,1.1,,bad,1.0,2.0,2.2,1.1,1.0945,1.1055,,0.03,,0.0
""")
    assert outputs == snapshot("""\
step,version,title,answer,against,before_ms,after_ms,ratio,low,high,outputs,allowed,rounds,seconds
1,1.1,,bad,1.0,,,,,,0.031,0.001,,0.0
""")


@pytest.mark.parametrize(
    "found",
    [
        bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"})),
        bisected([2.0, 2.0, 2.2, 2.2, 2.5], finds_all=True, traits=Traits(open_always={"1.1"})),
        bisected([2.0, 2.0]),
    ],
)
def test_the_document_has_the_type_of_its_schema(found: Bisect) -> None:
    text = BISECT.dump(found)
    document = msgspec.json.decode(text, type=BISECT.json_type)
    assert json.loads(msgspec.json.encode(document)) == json.loads(text)
    assert len(document.steps) == len(found.search.steps)
    assert [each.first_bad.name for each in document.regressions] == [
        each.first_bad.name for each in found.search.regressions
    ]


def bisected_by_outputs(shares: list[float | None]) -> Bisect:
    """A bisect of versions whose outputs differ so far from those of the first."""
    versions = make_versions(len(shares))
    rule = SearchRule(tolerance=0.001, judges=BisectFigure.OUTPUTS)

    def judge(question: Question) -> Judged:
        good, other = (shares[versions.index(each)] for each in (question.good, question.other))
        share = None if other is None or good is None else abs(other - good)
        is_bad = share is None or share > question.allowed
        verdict = Verdict.REGRESSED if is_bad else Verdict.PASSED
        return Judged(verdict, Metric(OUTPUTS, 0.0, share, verdict, allowed=question.allowed))

    return Bisect(
        model="models/encoder.onnx",
        engine="engine",
        case="b1-c1",
        range=VersionRange(RangeKind.RELEASES, versions),
        search=find_regressions(versions, judge, rule, lambda: 0.0),
        tolerance=rule.tolerance,
        level=rule.level,
        seconds=61.0,
        judges=rule.judges,
    )


def test_a_bisect_by_outputs_says_how_far_they_differ() -> None:
    assert shown(bisected_by_outputs([0.0, 0.0, 0.00002, 0.031, 0.031])) == snapshot("""\
models/encoder.onnx b1-c1 on engine: other outputs since engine 1.3
the outputs of 1.2 and 1.0 differ by 0.002 %; the outputs of 1.3 and 1.0 differ by 3.1 %
the outputs of 1.3 and 1.2 differ by 3.1 %

step  version  answer  against  outputs  limit  time
────────────────────────────────────────────────────
   1  1.4      bad     1.0        3.1 %  0.1 %   0 s
   2  1.2      good    1.0      0.002 %  0.1 %   0 s
   3  1.3      bad     1.0        3.1 %  0.1 %   0 s
   4  1.3      bad     1.2        3.1 %  0.1 %   0 s

What to do next
measure 1.2 → 1.3 again: modelperf compare models/encoder.onnx models/encoder.onnx --requirement-a engine==1.2 --requirement-b engine==1.3 --engine engine
stay at 1.2: pip install engine==1.2

note: other changes in the range were not looked for: --all finds them
note: 4 steps in 61 s
""")


@pytest.mark.parametrize(
    ("share", "headline"),
    [
        (0.0, "the outputs of engine 1.1 and 1.0 are equal, allowed 0.1 %"),
        (0.0005, "the outputs of engine 1.1 and 1.0 differ by 0.05 %, allowed 0.1 %"),
    ],
)
def test_ends_with_the_same_outputs_are_the_answer(share: float, headline: str) -> None:
    found = bisected_by_outputs([0.0, share])
    assert shown(found).splitlines()[0] == f"models/encoder.onnx b1-c1 on engine: {headline}"


def test_the_document_of_a_bisect_by_outputs_has_their_difference_and_no_times() -> None:
    document = json.loads(BISECT.dump(bisected_by_outputs([0.0, 0.031])))
    (step,) = document["steps"]
    assert (document["judges"], step["outputs"]) == ("outputs", 0.031)
    assert (step["before_ms"], step["after_ms"], step["ratio"]) == (None, None, None)
