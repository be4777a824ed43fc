"""All baselines of a folder, and how they differ from an older state of the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import list_changes
from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.program_store import program_names, read_program
from pytest_modelperf.baselines.records import Baseline, BaselineChange, ModelBaseline, StoredCase
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.revisions.commits import Commit, RefOption, find_commit, folder_taken_from_git
from pytest_modelperf.text.escaping import printable

_OPTION = RefOption("--diff", "modelperf baselines --dir old/baselines", takes_paths=False)
# Other versions of these packages may count a model differently.
_COUNTERS = ("pytest-modelperf", "onnx")
SHORT = 12

Found = TypeVar("Found")


class ReviewStatus(Enum):
    """How a baseline changed since a commit."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"

    @classmethod
    def of(cls, before: object, after: object) -> ReviewStatus:
        if before is None:
            return cls.NEW
        return cls.REMOVED if after is None else cls.CHANGED


class BrokenBaseline(Struct, frozen=True):
    """A baseline that cannot be read, and why. `commit` is None if it is in the work tree."""

    name: str
    problem: str
    commit: Commit | None = None


BROKEN = JsonObject(BrokenBaseline, "name commit=commit.sha problem")


class ListedProgram(Struct, frozen=True):
    """The baseline of a program, with the name of its folder."""

    name: str
    program: StoredProgram


class BaselineOverview(Struct, frozen=True):
    """The baselines of a folder."""

    folder: Path
    baselines: tuple[Baseline, ...]
    broken: tuple[BrokenBaseline, ...]
    programs: tuple[ListedProgram, ...] = ()


BASELINE_LIST = JsonDocument(
    BaselineOverview,
    "folder baselines programs broken",
    baselines=JsonObject(
        Baseline,
        "name model=model.model.name sha256=model.model.sha256 twin_sha256=model.twin.sha256"
        " machines=machines.key cases=model.cases",
        about="A baseline in the list of a folder; `machines` are the keys of those that measured"
        " it.",
        sha256=str | None,
        twin_sha256=str | None,
        cases=JsonObject(
            StoredCase,
            "id model_sha256 macs=static.macs params=static.params date=provenance.date",
            about="A case of a baseline, without its layer types and samples.",
            model_sha256=str | None,
            macs=int,
            params=int,
        ),
    ),
    programs=JsonObject(
        ListedProgram,
        "name test=program.test commit=program.commit recorded=program.recorded"
        " machine=program.machine p50_ms=program.figures.p50_ms",
        about="The baseline of a program: the test, and the commit that was accepted.",
    ),
    broken=BROKEN,
)


class Contradiction(Struct, frozen=True):
    """Figures that changed although the model has the same digest.

    `case` is None for a figure of the whole model. `versions` are the packages that do the
    counting, if other versions of them recorded the baseline: `onnx 1.19.0 -> 1.23.2`.
    """

    case: str | None
    versions: tuple[str, ...]


class ReviewedBaseline(Struct, frozen=True):
    """A baseline that changed, with None on the side that lacks it."""

    name: str
    before: Baseline | None
    after: Baseline | None

    @property
    def status(self) -> ReviewStatus:
        return ReviewStatus.of(self.before, self.after)

    @property
    def is_same_model(self) -> bool | None:
        """Whether the model is the same, or None if one side has no baseline or no digest."""
        if self.before is None or self.after is None:
            return None
        known, now = self.before.model.model.sha256, self.after.model.model.sha256
        return None if known is None or now is None else known == now

    @property
    def cases_of_older_model(self) -> tuple[str, ...]:
        """The cases that were recorded with another model than the one recorded last."""
        if self.after is None:
            return ()
        last = self.after.model.model.sha256
        return tuple(case.id for case in self.after.model.cases if case.model_sha256 != last)

    @property
    def changes(self) -> tuple[BaselineChange, ...]:
        """Every figure that changed, and every change of the measuring machines."""
        return (*list_changes(self.before, self.after), *self._machine_changes())

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        if self.before is None or self.after is None:
            return ()
        return tuple(_find_contradictions(self.before.model, self.after.model))

    def _machine_changes(self) -> Iterator[BaselineChange]:
        if self.before is None or self.after is None:
            return
        known = {machine.key: machine.machine for machine in self.before.machines}
        now = {machine.key: machine.machine for machine in self.after.machines}
        for key in sorted({*known, *now}):
            before, after = known.get(key), now.get(key)
            if before is None or after is None:
                sides = (None if before is None else key), (None if after is None else key)
            else:
                sides = before.cpu, after.cpu
            if sides[0] != sides[1]:
                yield BaselineChange(
                    case=None, name="machine", before=sides[0], after=sides[1], machine=key
                )


class ReviewedProgram(Struct, frozen=True):
    """The baseline of a program that changed, with None on the side that lacks it."""

    name: str
    before: StoredProgram | None
    after: StoredProgram | None

    @property
    def status(self) -> ReviewStatus:
        return ReviewStatus.of(self.before, self.after)

    @property
    def test(self) -> str | None:
        known = self.after or self.before
        return None if known is None else known.test


class Review(Struct, frozen=True):
    """The changes in a folder since a commit. `unchanged` counts both models and programs."""

    folder: Path
    commit: Commit
    baselines: tuple[ReviewedBaseline, ...]
    unchanged: int
    broken: tuple[BrokenBaseline, ...]
    programs: tuple[ReviewedProgram, ...] = ()


_PROGRAM_SIDE = JsonObject(
    StoredProgram,
    "commit recorded machine p50_ms=figures.p50_ms inferences=work.inferences made=work.made"
    " macs=work.macs",
    title="ReviewedProgramSide",
    about="The baseline of a program on one side.",
)
BASELINE_DIFF = JsonDocument(
    Review,
    "folder ref=commit.text commit=commit.sha unchanged baselines programs broken",
    programs=JsonObject(
        ReviewedProgram,
        "name test status before after",
        about="The baseline of a program that is not as it was; null on the side that lacks it.",
        before=_PROGRAM_SIDE,
        after=_PROGRAM_SIDE,
    ),
    baselines=JsonObject(
        ReviewedBaseline,
        "name status is_same_model contradictions changes",
        about="A baseline that is not as it was.",
        changes=JsonObject(
            BaselineChange,
            "case machine name before after ratio",
            about="A figure that changed; null on the side that lacks it.",
        ),
    ),
    broken=BROKEN,
)


def list_baselines(folder: Path) -> BaselineOverview:
    """List the baselines in a folder. Raises UsageError if the folder does not exist."""
    if not folder.is_dir():
        raise _no_folder(folder)
    store = BaselineStore(folder)
    baselines, broken = _read_each(store.read, folder, store.names())
    read = partial(read_program, folder)
    programs, broken_programs = _read_each(read, folder, program_names(folder))
    return BaselineOverview(
        folder,
        tuple(baselines.values()),
        (*broken, *broken_programs),
        tuple(ListedProgram(name, found) for name, found in programs.items()),
    )


def review_baselines(folder: Path, ref: str) -> Review:
    place = folder.resolve()
    nearest = next(each for each in (place, *place.parents) if each.is_dir())
    commit = find_commit(ref, nearest, _OPTION)
    with folder_taken_from_git(commit, place) as taken:
        if not folder.is_dir() and not any(taken.iterdir()):
            raise _no_folder(folder, commit)
        old, new = BaselineStore(taken), BaselineStore(folder)
        names = sorted({*old.names(), *new.names()})
        before, broken_before = _read_each(old.read, taken, names, commit, folder)
        after, broken_after = _read_each(new.read, folder, names)
        tests = sorted({*program_names(taken), *program_names(folder)})
        read_old, read_new = (partial(read_program, each) for each in (taken, folder))
        programs_before, more_before = _read_each(read_old, taken, tests, commit, folder)
        programs_after, more_after = _read_each(read_new, folder, tests)
    broken = sorted(
        (*broken_before, *broken_after, *more_before, *more_after), key=lambda each: each.name
    )
    unknown = {each.name for each in broken}
    whole = [
        ReviewedBaseline(name, before.get(name), after.get(name))
        for name in names
        if name not in unknown
    ]
    programs = [
        ReviewedProgram(name, programs_before.get(name), programs_after.get(name))
        for name in tests
        if name not in unknown
    ]
    changed = tuple(each for each in whole if each.before != each.after)
    changed_programs = tuple(each for each in programs if each.before != each.after)
    unchanged = len(whole) + len(programs) - len(changed) - len(changed_programs)
    return Review(folder, commit, changed, unchanged, tuple(broken), changed_programs)


def _read_each(
    read: Callable[[str], Found | None],
    folder: Path,
    names: Iterable[str],
    commit: Commit | None = None,
    named: Path | None = None,
) -> tuple[dict[str, Found], tuple[BrokenBaseline, ...]]:
    """Return the baselines of these names, and those that are broken.

    A problem in a folder that was taken from a commit is reported with the path `named`, which the
    user named.
    """
    whole: dict[str, Found] = {}
    broken: list[BrokenBaseline] = []
    for name in names:
        try:
            found = read(name)
        except BaselineError as error:
            problem = str(error).replace(printable(str(folder)), printable(str(named or folder)))
            broken.append(BrokenBaseline(name, problem, commit))
            continue
        if found is not None:
            whole[name] = found
    return whole, tuple(broken)


def _no_folder(folder: Path, commit: Commit | None = None) -> UsageError:
    places = "" if commit is None else f", neither here nor in {commit}"
    return UsageError(
        f"there is no folder {printable(str(folder))}{places}. Give the folder of the baselines "
        "with --dir, or record some with `pytest --modelperf --modelperf-update-baseline`."
    )


def _find_contradictions(before: ModelBaseline, after: ModelBaseline) -> Iterator[Contradiction]:
    if _is_other_file(before.model, after.model):
        yield Contradiction(None, ())
    for case in after.cases:
        old = before.case(case.id)
        if old is not None and old.asks_the_same(case) and _has_other_counts(old, case):
            yield Contradiction(case.id, tuple(_other_versions(old, case)))


def _is_other_file(known: ModelFacts, now: ModelFacts) -> bool:
    """Whether facts of a model differ although its digest is the same."""
    if known.sha256 != now.sha256 or known.sha256 is None:
        return False
    sizes = {known.total_bytes, now.total_bytes} - {None}
    return len(sizes) > 1 or (known.size_bytes, known.opsets) != (now.size_bytes, now.opsets)


def _has_other_counts(old: StoredCase, new: StoredCase) -> bool:
    """Whether the counts of the graph differ, ignoring those that one side does not have."""
    known, now = old.static, new.static
    # Notes only explain the counts.
    left_out: dict[str, Any] = {"notes": ()}
    if None in {known.scalar_params, now.scalar_params}:
        left_out["scalar_params"] = None
    return replace(known, **left_out) != replace(now, **left_out)


def _other_versions(old: StoredCase, new: StoredCase) -> Iterator[str]:
    known, now = old.provenance.packages, new.provenance.packages
    for package in _COUNTERS:
        before, after = known.get(package), now.get(package)
        if before != after:
            yield f"{package} {before or 'unknown'} -> {after or 'unknown'}"
