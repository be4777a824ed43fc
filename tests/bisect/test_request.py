"""Requests that all comparisons of one search share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from pytest_modelperf.bisect.records import Bisect, RangeKind, VersionRange
from pytest_modelperf.bisect.request import BisectRequest
from pytest_modelperf.bisect.search import Question, SearchRule
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.errors import ChangedModelError
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.bisects import TableJudge, make_versions

SLOWER = [1.0, 1.0, 1.0, 1.1, 1.1]


def search(kind: RangeKind, models: Sequence[str]) -> Bisect:
    """A search among versions whose times are known; each comparison finds the next model."""
    versions = make_versions(len(SLOWER))
    judge, left = TableJudge(versions, SLOWER), list(models)

    def compare(question: Question, _: Watch) -> Comparison:
        metric = judge(question).metric
        assert metric is not None
        facts = replace(ModelFacts.named("m.onnx"), sha256=left.pop(0))
        return Comparison(facts, facts, (CaseComparison(Case(1, 1), (metric,), ()),))

    asked = BisectRequest(
        model="m.onnx",
        request=ProfileRequest(),
        range=VersionRange(kind, versions),
        setup=Setup(),
        rule=SearchRule(),
    )
    return asked.search(compare)


def test_releases_that_ran_different_models_give_no_answer() -> None:
    (found,) = search(RangeKind.RELEASES, ["a"] * 9).search.regressions
    assert (found.last_good.name, found.first_bad.name) == ("1.2", "1.3")
    with pytest.raises(ChangedModelError, match=r"m\.onnx was changed after the first step"):
        search(RangeKind.RELEASES, ["a", "a", *"b" * 7])


def test_commits_have_different_models() -> None:
    assert len(search(RangeKind.COMMITS, "abcdefghi").search.regressions) == 1
