"""Run both sides of a program: their stations, the orders to each, and their errors.

A side is the work tree, or a commit that a user names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, ProgramSources, SeenModel, StoredProgram
from pytest_modelperf.baselines.program_store import program_path
from pytest_modelperf.errors import MeasureError, ModelPerfError, UsageError
from pytest_modelperf.profiler.measurements import WAITING
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.programs import messages
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.commits import accepted_commit, find_against
from pytest_modelperf.programs.messages import (
    RECORDED_ENVIRONMENT,
    CallProfile,
    Reached,
    Side,
    Turn,
)
from pytest_modelperf.programs.rounds import OpenPair
from pytest_modelperf.programs.trees import SideTree, complete_tree
from pytest_modelperf.programs.worktrees import tree_of
from pytest_modelperf.systems.trees import TREES
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.words import shorten_list

_PACKAGE = Path(__file__).parents[1]
# The package is loaded from here, whatever version an environment has, and without an import path
# that would expose other modules here.
_START = """\
import sys
from importlib.util import module_from_spec, spec_from_file_location
sys.path.pop(0)
spec = spec_from_file_location("pytest_modelperf", sys.argv[1] + "/__init__.py",
    submodule_search_locations=[sys.argv[1]])
sys.modules["pytest_modelperf"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["pytest_modelperf"])
from pytest_modelperf.programs.station.main import main
main()
"""
# Variables that make a process record itself, or that belong to the test of the parent.
_NOT_INHERITED = (
    "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COV_CORE_CONFIG", "COV_CORE_DATAFILE",
    "COV_CORE_SOURCE", "MODELPERF_SESSION_LOG", "MODELPERF_TRACE", "PYTEST_ADDOPTS",
    "PYTEST_CURRENT_TEST",
)  # fmt: skip
_LOG_LINES = 15
_LOG_BYTES = 1 << 16
_END_SECONDS = 10
_OLDER = "in the older version"
_Kind = TypeVar("_Kind", bound=messages.Answer)


class TestMissingError(ModelPerfError):
    """A test does not exist on a side, so it cannot be compared."""

    __test__ = False

    def __init__(self, message: str, side: Side) -> None:
        super().__init__(message)
        self.side = side


class WatchedWork(Struct, frozen=True):
    """The work of a call, and that of the next call if it differs.

    `models` are the files by `SessionWork.model`. A model in memory was copied to a file. `numbers`
    are the inputs of each model that are single numbers.
    """

    work: CallWork
    next_work: CallWork | None
    models: Mapping[str, Path]
    numbers: Mapping[str, Mapping[str, float]] = {}


class SideStation:
    """A process that sets up a test, and calls its function when it gets an order.

    Use it in a `with` statement.
    """

    def __init__(self, place: messages.StationPlace) -> None:
        self.place = place
        self._log = Path(place.scratch) / "log.txt"
        self._digests: dict[str, str | None] = {}
        self._has_left = False
        # The peak memory of the process by the last timed call.
        self.peak_bytes: int | None = None
        Path(place.scratch).mkdir(parents=True, exist_ok=True)
        tree = SideTree(place.tree, place.worktree)
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        with self._log.open("wb") as log:
            started_ns = time.monotonic_ns()
            self._process = subprocess.Popen(  # noqa: S603  # a Python that the user has chosen
                [place.python, "-c", _START, str(_PACKAGE)],
                cwd=_existing(Path(place.tree) / place.folder, Path(tree.tree)),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                **TREES.popen_options(),
            )
        self._tree = TREES.tree_of(self._process.pid)
        try:
            self._send(messages.Begin(place=place, started_ns=started_ns))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> SideStation:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def wait_reached(self) -> Reached:
        """Wait until the test reaches the call, or raise TestMissingError if it does not exist."""
        return self._receive(messages.IsReached).reached

    def call(self, count: int, max_ns: int) -> tuple[Turn, ...]:
        """Time up to `count` calls, at least one.

        No call begins after `max_ns`. Then the process is paused until the next order, because
        waiting threads of a session spin for a while, and would take a processor from the other
        side.
        """
        timed = self._ask(messages.TimeCalls(count, max_ns), messages.TimedTurns)
        self._tree.pause()
        self.peak_bytes = timed.peak_bytes
        return timed.turns

    def watch(self) -> WatchedWork:
        watched = self._ask(messages.Watch(), messages.Watched)
        following = watched.next_work
        return WatchedWork(
            self._with_digests(watched.work, watched.models),
            None if following is None else self._with_digests(following, watched.models),
            {name: Path(place.path) for name, place in watched.models.items() if place.path},
            {name: place.numbers for name, place in watched.models.items()},
        )

    def profile(self, calls: int) -> CallProfile:
        return self._ask(messages.ProfileCalls(calls), messages.ProfiledCalls).profile

    def seen(self) -> ProgramSources:
        seen = self._ask(messages.GiveSeen(), messages.SeenHere)
        tree = SideTree(self.place.tree, self.place.worktree)
        return ProgramSources(
            files=seen.files,
            distributions=seen.distributions,
            models=tuple(
                SeenModel(
                    name=name,
                    path=None
                    if place.is_temporary or not place.path
                    else tree.model_place(place.path),
                    sha256=self._digest(place),
                )
                for name, place in sorted(seen.models.items())
            ),
            python=seen.python,
        )

    def result(self) -> bytes:
        """Return the pickled result of a call, a list for a generator or for several inputs."""
        return self._ask(messages.GiveResult(), messages.Result).pickled

    def compare(self, other: bytes, way: str) -> str | None:
        """Return a sentence on how the results differ, compared as in `CompareResult`, or None."""
        return self._ask(messages.CompareResult(other, way), messages.Compared).difference

    def leave(self) -> None:
        """Make the test end and tear down its fixtures, without waiting for that."""
        if not self._has_left:
            self._has_left = True
            self._send(messages.End())

    def end(self) -> None:
        """Make the test end and tear down its fixtures, then end all processes that are left."""
        try:
            self.leave()
            self._process.wait(_END_SECONDS)
        except (OSError, MeasureError, subprocess.TimeoutExpired):
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and all processes that it started, and remove its temporary files."""
        self._tree.kill()
        self._process.wait()
        # Closing would flush an unsent order into a pipe without a reader.
        with suppress(OSError):
            _stream(self._process.stdin).close()
        _stream(self._process.stdout).close()
        shutil.rmtree(self.place.scratch, ignore_errors=True)

    def _ask(self, order: messages.Order, kind: type[_Kind]) -> _Kind:
        self._send(order)
        return self._receive(kind)

    def _send(self, message: messages.Order | messages.Begin) -> None:
        self._tree.resume()
        try:
            messages.write_message(_stream(self._process.stdin), message)
        except OSError:
            raise self._died() from None

    def _receive(self, kind: type[_Kind]) -> _Kind:
        answer = messages.read_message(_stream(self._process.stdout), messages.ANSWERS)
        side, described = self.place.side, self._description
        test = self.place.test
        if isinstance(answer, kind):
            return answer
        match answer:
            case None:
                raise self._died()
            case messages.IsMissing(reason=reason):
                raise TestMissingError(f"{test} does not exist {described}: {reason}", side)
            case messages.NotReached(reason=reason):
                raise self._error(f"{test} did not reach modelperf.check {described}: {reason}")
            case messages.Failed(reason=reason):
                raise self._error(f"{test} failed {described}:\n{reason}")
        raise self._error(f"{test} {described}: the station sent an unexpected answer")

    def _died(self) -> MeasureError:
        self._process.wait()
        text = self._last_lines()
        shown = f". Its last output:\n{text}" if text else ""
        code = self._process.returncode
        return self._error(
            f"the process of {self.place.test} {self._description} ended with {code}{shown}"
        )

    @property
    def _description(self) -> str:
        return _OLDER if self.place.side == "before" else self.place.at

    def _error(self, message: str) -> MeasureError:
        error = MeasureError(printable_lines(message))
        error.side = self.place.side
        return error

    def _last_lines(self) -> str:
        try:
            data = self._log.read_bytes()[-_LOG_BYTES:]
        except OSError:
            return ""
        return "\n".join(data.decode("utf-8", "replace").rstrip().splitlines()[-_LOG_LINES:])

    def _with_digests(self, work: CallWork, models: Mapping[str, messages.ModelPlace]) -> CallWork:
        return replace(
            work,
            sessions=tuple(
                replace(session, sha256=self._digest(models[session.model]))
                for session in work.sessions
            ),
        )

    def _digest(self, place: messages.ModelPlace) -> str | None:
        """Return the digest of a model with its external data, or None if it is not ONNX."""
        if place.sha256 is not None or place.path is None:
            return place.sha256
        if place.path not in self._digests:
            # Imported here, because it loads onnx.
            from pytest_modelperf.graph.model_file import open_model

            try:
                self._digests[place.path] = open_model(place.path).sha256()
            except ModelPerfError:
                self._digests[place.path] = None
        return self._digests[place.path]


def _existing(folder: Path, top: Path) -> Path:
    while not folder.is_dir() and folder != top:
        folder = folder.parent
    return folder


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("the station was started without pipes")
    return stream


# -- both sides of a program


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
    """The stations of both sides, started round after round in a `with` statement."""

    def __init__(
        self, before: messages.StationPlace, after: messages.StationPlace, scratch: Path
    ) -> None:
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
        """Start both stations of a round at the same time. They leave when the context ends."""
        self._started += 1
        with ExitStack() as stack:
            both = [
                stack.enter_context(SideStation(replace(place, scratch=self._folder(place.side))))
                for place in (self._before, self._after)
            ]
            reached = (both[0].wait_reached(), both[1].wait_reached())
            # The stations of the previous round ended while these started.
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


def measuring_program(asked: ProgramCheck) -> AbstractContextManager[None]:
    """Wait until only this process measures, and show which one it waits for."""
    return measuring_alone(lambda holder: asked.show_step(f"{WAITING} {holder}"))


@contextmanager
def both_sides(asked: ProgramCheck, stored: StoredProgram | None) -> Iterator[BothSides]:
    """Start both sides of a program, the older one in its own tree or environment."""
    with measuring_program(asked), working_folder("programs") as scratch:
        before = _older_place(asked, stored, scratch)
        with BothSides(before, asked.place, scratch) as sides:
            yield sides


def _older_place(
    asked: ProgramCheck, stored: StoredProgram | None, scratch: Path
) -> messages.StationPlace:
    place = replace(asked.place, side="before")
    top = asked.top
    if asked.against is not None and _REQUIREMENT.match(asked.against):
        # Imported here, because most checks need no environment.
        from pytest_modelperf.programs.trees import python_with

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
        from pytest_modelperf.programs.trees import python_of

        asked.show_step("make the recorded environment")
        place = replace(place, python=str(python_of(stored, top)), sys_path=None)
    return place


def seen_now(asked: ProgramCheck, scratch: Path) -> ProgramSources:
    """Return what the program reads in the work tree."""
    with SideStation(replace(asked.place, scratch=str(scratch / "seen"))) as station:
        station.wait_reached()
        seen = station.seen()
        station.end()
    return seen


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
