"""The baselines of a folder, and what changed of them, as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.baselines.overview import (
    BaselineOverview,
    BrokenBaseline,
    Contradiction,
    Review,
    ReviewedBaseline,
    ReviewStatus,
)
from pytest_modelperf.baselines.records import Baseline, StoredCase, Value
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document


class ListedBaselineCaseJson(Struct, frozen=True, kw_only=True):
    """A case of a baseline, without its layer types and samples."""

    id: str
    model_sha256: str | None
    macs: int
    params: int
    date: dt.date


class ListedBaselineJson(Struct, frozen=True, kw_only=True):
    """A baseline in the list of a folder; `machines` are the keys of those that measured it."""

    name: str
    model: str
    sha256: str | None
    twin_sha256: str | None
    machines: tuple[str, ...]
    cases: tuple[ListedBaselineCaseJson, ...]


class BrokenBaselineJson(Struct, frozen=True, kw_only=True):
    """A baseline that cannot be read; `commit` is null if it lies in the work tree."""

    name: str
    commit: str | None
    problem: str


class BaselineListJson(Struct, frozen=True, kw_only=True):
    """All baselines of a folder."""

    schema: int
    folder: str
    baselines: tuple[ListedBaselineJson, ...]
    broken: tuple[BrokenBaselineJson, ...]


class ChangedFigureJson(Struct, frozen=True, kw_only=True):
    """A figure that changed; null on the side that lacks it."""

    case: str | None
    machine: str | None
    name: str
    before: Value
    after: Value
    ratio: float | None


class ChangedBaselineJson(Struct, frozen=True, kw_only=True):
    """A baseline that is not as it was."""

    name: str
    status: ReviewStatus
    is_same_model: bool | None
    contradictions: tuple[Contradiction, ...]
    changes: tuple[ChangedFigureJson, ...]


class BaselineDiffJson(Struct, frozen=True, kw_only=True):
    """The changes of the baselines of a folder since a commit."""

    schema: int
    folder: str
    ref: str
    commit: str
    unchanged: int
    baselines: tuple[ChangedBaselineJson, ...]
    broken: tuple[BrokenBaselineJson, ...]


def dump_overview(overview: BaselineOverview) -> str:
    return dump_document(
        BaselineListJson(
            schema=SCHEMA,
            folder=str(overview.folder),
            baselines=tuple(map(_listed, overview.baselines)),
            broken=_broken(overview.broken),
        )
    )


def dump_review(review: Review) -> str:
    return dump_document(
        BaselineDiffJson(
            schema=SCHEMA,
            folder=str(review.folder),
            ref=review.commit.text,
            commit=review.commit.sha,
            unchanged=review.unchanged,
            baselines=tuple(map(_changed, review.baselines)),
            broken=_broken(review.broken),
        )
    )


def _listed(baseline: Baseline) -> ListedBaselineJson:
    twin = baseline.model.twin
    return ListedBaselineJson(
        name=baseline.name,
        model=baseline.model.model.name,
        sha256=baseline.model.model.sha256,
        twin_sha256=None if twin is None else twin.sha256,
        machines=tuple(machine.key for machine in baseline.machines),
        cases=tuple(map(_listed_case, baseline.model.cases)),
    )


def _listed_case(case: StoredCase) -> ListedBaselineCaseJson:
    return copy_fields(
        ListedBaselineCaseJson,
        case,
        macs=case.static.macs,
        params=case.static.params,
        date=case.provenance.date,
    )


def _changed(each: ReviewedBaseline) -> ChangedBaselineJson:
    changes = tuple(copy_fields(ChangedFigureJson, change) for change in each.changes)
    return copy_fields(ChangedBaselineJson, each, changes=changes)


def _broken(broken: Sequence[BrokenBaseline]) -> tuple[BrokenBaselineJson, ...]:
    return tuple(
        copy_fields(
            BrokenBaselineJson, each, commit=None if each.commit is None else each.commit.sha
        )
        for each in broken
    )
