"""Compare a program in two versions that a user names: commits, or a commit and the work tree."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramSources
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.sides import measuring_program, seen_now
from pytest_modelperf.programs.trees import complete_tree
from pytest_modelperf.programs.worktrees import tree_of

_SHORT = 10


class ProgramVersions(Struct, frozen=True):
    """The versions of a program, whose trees get the work tree's files that are outside of git.

    `seen` is what the program reads in the work tree.
    """

    asked: ProgramCheck
    seen: ProgramSources

    def of_work_tree(self, before: str) -> ProgramCheck:
        """Return the check of the work tree against a commit."""
        self._tree(before)
        return replace(self.asked, against=before, environment=None)

    def of_commit(self, before: str, after: str) -> ProgramCheck:
        """Return the check of a commit against an earlier one."""
        place = replace(
            self.asked.place, tree=self._tree(after), at=f"at the commit {after[:_SHORT]}"
        )
        return replace(self.of_work_tree(before), place=place)

    def _tree(self, commit: str) -> str:
        top = self.asked.top
        tree = tree_of(commit, top, on_progress=self.asked.show_step)
        complete_tree(tree, self.seen, top)
        return str(tree)


def versions_of(asked: ProgramCheck) -> ProgramVersions:
    """Return the versions of a program, or raise MeasureError if it does not run here."""
    asked.show_step("start the program")
    with measuring_program(asked), working_folder("programs") as scratch:
        return ProgramVersions(asked, seen_now(asked, scratch))
