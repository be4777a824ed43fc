"""Programs in commands: a target with `::` is a test, which checks the program."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import is_given
from pytest_modelperf.cli.output import shown_progress
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.bisect.records import Bisect, VersionRange
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Comparison
    from pytest_modelperf.profiler.model_in_worker import Watch
    from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
    from pytest_modelperf.revisions.commits import Commit
    from pytest_modelperf.testing.program_check import NamedProgram

_OUTPUTS = frozenset({"json_file", "csv_file", "html_file", "markdown_file"})
_JUDGING = frozenset({"tolerance", "tolerances", "max_seconds"})
# The options that have an effect for a test.
COMPARE_OPTIONS = _OUTPUTS | _JUDGING | {"ref", "requirement_a"}
BISECT_OPTIONS = _OUTPUTS | _JUDGING | {"good", "bad", "commits", "finds_all"}


class TypedLimits(Struct, frozen=True, kw_only=True):
    """The limits that the user typed, with None for those of the test and the project."""

    tolerances: Tolerances | None
    max_seconds: float | None


def is_test(target: str) -> bool:
    """Whether the target of a command is a test's id. A file with such a name is a model."""
    return "::" in target and not os.path.lexists(target)


def require_options(target: str, allowed: Collection[str]) -> None:
    """Raise UsageError if an option is given that has no effect for a test."""
    for option in click.get_current_context().command.params:
        name = option.name or ""
        if isinstance(option, click.Option) and name not in allowed and is_given(name):
            raise UsageError(
                f"{option.opts[0]} is for models, and {printable(target)} is a test: leave it out."
            )


def compare_program(
    test: str, ref: str | None, requirements: Sequence[str], limits: TypedLimits
) -> Comparison:
    """Compare the program of a test in the work tree with a commit or another dependency."""
    require_options(test, COMPARE_OPTIONS)
    if (ref is None) == (not requirements) or len(requirements) > 1:
        raise UsageError(
            f"{printable(test)} is a test: give --ref with the commit to compare with, as in "
            "--ref v1.0, or one --requirement-a, as in --requirement-a magika==1.0.3."
        )
    from pytest_modelperf.comparing.records import Comparison, Verdict
    from pytest_modelperf.profiler.records import ModelFacts
    from pytest_modelperf.programs.check import check_program
    from pytest_modelperf.programs.sides import versions_of

    other = f"with {', '.join(requirements)}"
    with shown_progress() as progress:
        program = _find(test, limits, progress)
        asked = program.check
        if ref is not None:
            commit = _commit("--ref", ref, asked.top)
            asked, other = versions_of(asked).of_work_tree(commit.sha), f"at {commit}"
        else:
            asked = replace(asked, against=requirements[0], environment=None)
        case = check_program(asked, program.state).comparison
    if case.outcome is Verdict.NEW:
        raise UsageError(f"there is nothing to compare with: {'; '.join(case.reasons)}.")
    older, now = (
        ModelFacts.named(f"{asked.case.id} {at}", function_file=asked.place.test.split("::")[0])
        for at in (other, "now")
    )
    return Comparison(
        older, now, (case,), tolerance=asked.gate.tolerance, confidence=asked.gate.confidence
    )


def bisect_program(
    test: str, ends: tuple[str | None, str | None], limits: TypedLimits, *, finds_all: bool
) -> Bisect:
    """Search the commits since which the program of a test does more work or is slower.

    By default the good end is the accepted commit, and the bad end is HEAD.
    """
    require_options(test, BISECT_OPTIONS)
    from pytest_modelperf.bisect.request import ProgramBisect
    from pytest_modelperf.bisect.request import bisect_program as search
    from pytest_modelperf.programs.check import check_program
    from pytest_modelperf.programs.sides import versions_of

    def compare(before: str, after: str, check: ProgramCheck) -> CheckedProgram:
        asked = replace(versions, asked=check).of_commit(before, after)
        return check_program(asked, program.state)

    with shown_progress() as progress:
        program = _find(test, limits, progress)
        found = _range_of(test, program, *ends)
        versions = versions_of(program.check)
        request = ProgramBisect(test=test, check=program.check, range=found, finds_all=finds_all)
        return search(request, compare)


def _find(test: str, limits: TypedLimits, progress: Watch) -> NamedProgram:
    from pytest_modelperf.testing.program_check import find_program

    seconds = limits.max_seconds
    typed = [] if seconds is None else [f"--modelperf-max-seconds={seconds}"]
    program = find_program(test, progress, typed)
    if limits.tolerances is None:
        return program
    gate = replace(program.check.gate, tolerances=limits.tolerances)
    return replace(program, check=replace(program.check, gate=gate))


def _range_of(test: str, program: NamedProgram, good: str | None, bad: str | None) -> VersionRange:
    from pytest_modelperf.bisect.versions import HEAD, all_commits_between

    top = program.check.top
    first = _accepted(test, program) if good is None else _commit("--good", good, top)
    return all_commits_between(first, _commit("--bad", bad or HEAD, top))


def _commit(flag: str, text: str, top: Path) -> Commit:
    from pytest_modelperf.revisions.commits import RefOption, find_commit

    return find_commit(text, top, RefOption(flag, "a branch, a tag or a commit", takes_paths=False))


def _accepted(test: str, program: NamedProgram) -> Commit:
    from pytest_modelperf.baselines.program_store import program_path
    from pytest_modelperf.programs.commits import accepted_commit

    stored, asked = program.state.stored, program.check
    if stored is None:
        raise UsageError(
            f"{printable(test)} has no baseline, so no commit is known to be fast: give one with "
            "--good, such as --good v1.0."
        )
    path = program_path(asked.baselines, asked.name)
    return _commit("--good", accepted_commit(stored, path, asked.top), asked.top)
