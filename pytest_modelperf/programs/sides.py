"""Both sides of a program: where their stations run, and the stations of a round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramSources, StoredProgram
from pytest_modelperf.baselines.program_store import program_path
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.commits import accepted_commit, find_against
from pytest_modelperf.programs.messages import StationPlace
from pytest_modelperf.programs.records import RECORDED_ENVIRONMENT, Reached
from pytest_modelperf.programs.rounds import OpenPair
from pytest_modelperf.programs.side import SideStation, start_station
from pytest_modelperf.programs.tree_files import complete_tree
from pytest_modelperf.programs.worktrees import tree_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_REQUIREMENT = re.compile(r"^[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?\s*(==|~=|>=|<=|!=|<|>)")
_MOST_NAMED = 4


class OpenSides(Struct, frozen=True):
    """The stations of both sides in a round, which have reached the call."""

    before: SideStation
    after: SideStation
    reached: tuple[Reached, Reached]

    @property
    def pair(self) -> OpenPair:
        return OpenPair(self.before, self.after, self.reached)


class BothSides:
    """Starts the stations of both sides, round after round; use it in a `with` statement."""

    def __init__(self, before: StationPlace, after: StationPlace, scratch: Path) -> None:
        self._before = before
        self._after = after
        self._scratch = scratch
        self._started = 0
        self._leaving = ExitStack()

    def __enter__(self) -> BothSides:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(self, *error: object) -> None:
        self._leaving.close()

    @contextmanager
    def opened(self) -> Iterator[OpenSides]:
        """Both stations of a round, started at the same time; they leave with the context."""
        self._started += 1
        with ExitStack() as stack:
            both = [
                stack.enter_context(start_station(replace(place, scratch=self._folder(place.side))))
                for place in (self._before, self._after)
            ]
            reached = (both[0].wait_reached(), both[1].wait_reached())
            # Those of the round before ended while these started.
            self._leaving.close()
            self._require_own_files(reached)
            yield OpenSides(both[0], both[1], reached)
            for station in both:
                station.leave()
            self._leaving = stack.pop_all()
            for station in both:
                self._leaving.callback(station.end)

    def _folder(self, side: str) -> str:
        return str(self._scratch / f"{side[0]}-{self._started}")

    def _require_own_files(self, reached: tuple[Reached, Reached]) -> None:
        """Raise UsageError if a side with a tree of its own runs code of the work tree."""
        if self._before.tree == self._after.tree:
            return
        old, new = reached
        shared = {*old.of_worktree, *new.of_worktree}
        if old.source is not None and old.source == new.source:
            source = Path(old.source)
            if source.is_absolute() and source.is_relative_to(self._after.worktree):
                shared.add(old.source)
        if shared:
            named = shorten_list(sorted(map(printable, shared)), _MOST_NAMED)
            raise UsageError(
                f"the older version read files of the work tree: {named}. So both "
                "sides would run the same code. Name the folder that it imports from, as in "
                'modelperf.check(..., paths=["src"]).'
            )


@contextmanager
def measuring_program(asked: ProgramCheck) -> Iterator[None]:
    """Wait until this process alone measures, and show for whom."""
    with measuring_alone(lambda holder: asked.show_step(f"wait for {holder}")):
        yield


@contextmanager
def both_sides(asked: ProgramCheck, stored: StoredProgram | None) -> Iterator[BothSides]:
    """Both sides of a program, of which the older one has a tree or an environment of its own."""
    with measuring_program(asked), working_folder("programs") as scratch:
        before = _older_place(asked, stored, scratch)
        with BothSides(before, asked.place, scratch) as sides:
            yield sides


def _older_place(asked: ProgramCheck, stored: StoredProgram | None, scratch: Path) -> StationPlace:
    place = replace(asked.place, side="before")
    top = asked.top
    if asked.against is not None and _REQUIREMENT.match(asked.against):
        # Imported here: most checks need no environment.
        from pytest_modelperf.programs.environments import python_with

        seen = stored.seen if stored is not None else seen_now(asked, scratch)
        asked.show_step(f"make an environment with {asked.against}")
        return replace(place, python=str(python_with(asked.against, seen, top)), sys_path=None)
    if asked.against is not None:
        commit = find_against(asked.against, top).sha
    elif stored is not None:
        commit = accepted_commit(stored, program_path(asked.baselines, asked.name), top)
    else:
        raise UsageError("this program has no older version to compare with.")
    tree = tree_of(commit, top, on_progress=asked.show_step)
    if stored is not None and asked.against is None:
        complete_tree(tree, stored.seen, top)
    place = replace(place, tree=str(tree))
    if asked.environment == RECORDED_ENVIRONMENT and stored is not None:
        from pytest_modelperf.programs.environments import python_of

        asked.show_step("make the recorded environment")
        place = replace(place, python=str(python_of(stored, top)), sys_path=None)
    return place


def seen_now(asked: ProgramCheck, scratch: Path) -> ProgramSources:
    """What the program reads in the work tree."""
    with start_station(replace(asked.place, scratch=str(scratch / "seen"))) as station:
        station.wait_reached()
        seen = station.seen()
        station.end()
    return seen
