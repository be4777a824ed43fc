"""Verdicts have one look in all reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from pytest_modelperf.bisect.report import bisect_report
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.reducing.records import StepAnswer
from pytest_modelperf.reducing.report import reduction_report
from pytest_modelperf.report.model import Report, ReportBlock, Rows, Section, Tone
from pytest_modelperf.testing.report import run_report
from pytest_modelperf.tuning.report import tuning_report
from pytest_modelperf.whatif.report import WhatIfView, whatif_report
from tests.bisect.test_reports import bisected
from tests.support.bisects import Traits
from tests.support.comparisons import BROKEN, FASTER, OPEN, SAME, SLOWER, compared
from tests.support.known import known
from tests.support.reductions import make_reduction
from tests.support.run_reports import ALL, outcome, run
from tests.support.tunings import make_tuned_case, make_tuning, nothing_helps
from tests.support.whatifs import make_whatif


def reports() -> Iterator[Report]:
    yield comparison_report(compared(SLOWER, FASTER, OPEN, SAME, BROKEN), COMMAND_WORDING)
    yield run_report(run(*map(outcome, ALL)))
    failing = bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"}))
    yield bisect_report(failing, COMMAND_WORDING)
    yield tuning_report(make_tuning(cases=(make_tuned_case(), nothing_helps())))
    yield whatif_report(make_whatif(), WhatIfView())
    found = make_reduction()
    search = known(found.search)
    failed = replace(search.steps[0], shown=StepAnswer.FAILED, metric=None, reason="no kernel")
    found = replace(found, search=replace(search, steps=(failed, *search.steps)))
    yield reduction_report(found, COMMAND_WORDING, "reduced")


def verdicts(blocks: Iterable[ReportBlock]) -> Iterator[tuple[str, Tone]]:
    """The word and the tone of each row with a verdict."""
    for block in blocks:
        if isinstance(block, Section):
            yield from verdicts(block.blocks)
        elif isinstance(block, Rows):
            places = [at for at, column in enumerate(block.table.columns) if column.is_verdict]
            for row, tone in zip(block.table.rows, block.tones, strict=bool(places)):
                yield from ((row[place], tone) for place in places if row[place])


def test_a_word_has_the_same_tone_in_all_reports() -> None:
    tones: dict[str, set[Tone]] = {}
    for report in reports():
        found = list(verdicts(report.blocks))
        assert found
        for word, tone in found:
            tones.setdefault(word, set()).add(tone)
    assert {word: each for word, each in tones.items() if len(each) > 1} == {}
    assert tones["failed"] == tones["slower"] == tones["regressed"] == tones["bad"] == {Tone.BAD}
    assert tones["open"] == tones["inconclusive"] == tones["neither"] == {Tone.UNSURE}
    assert tones["faster"] == tones["improved"] == tones["good"] == {Tone.GOOD}
