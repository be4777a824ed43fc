"""What is seen of an engine's sessions while a program runs them, and who is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

PLAN_FILE = "plan.onnx"

# Name, shape and type of each input of an inference that told them; the type is whatever has its
# name as text, for to ask for that takes longer than all the rest.
InputShapes: TypeAlias = tuple[tuple[str, tuple[int, ...], object], ...]


@dataclass(slots=True, eq=False)
class WatchedSession:
    """What is known of a session, also when it is gone. Times are those of `perf_counter_ns`.

    `model` is a file that holds its model. `folder` is where it writes a profile for us; where it
    writes none, `why` says so. `begun_ns` is when its profile began, and `profiles` are those that
    ended. Ours ends after so many `calls_left`, if any are counted; `is_limited` says that it did.
    """

    model: Path | None = None
    file_name: str | None = None
    folder: Path | None = None
    why: str | None = None
    begun_ns: int = 0
    profiles: list[Path] = field(default_factory=list)
    calls_left: int = 0
    is_limited: bool = False

    @property
    def plan(self) -> bytes | None:
        """The graph that the runtime made of the model, where it saved it."""
        path = None if self.folder is None else self.folder / PLAN_FILE
        return path.read_bytes() if path is not None and path.is_file() else None


class Watcher(Protocol):
    """Who is told of sessions and inferences, by the threads that they run on."""

    def new_folder(self) -> Path | None:
        """An empty folder for the profile of a session; None where none is wanted."""
        ...

    def on_session(self, session: WatchedSession, start_ns: int, end_ns: int) -> None: ...

    def on_profile_written(self, session: WatchedSession, start_ns: int, end_ns: int) -> None:
        """The runtime wrote the profile of a session, and the program had to wait for it."""
        ...

    def on_inference(  # noqa: PLR0913, PLR0917  # a record of them would cost as much as all of it
        self,
        session: WatchedSession,
        method: str,
        start_ns: int,
        end_ns: int,
        shapes: InputShapes | None,
        error: str | None,
        has_waited: bool = False,  # noqa: FBT001, FBT002  # the same
    ) -> None:
        """An inference has ended, on the thread that this is told on.

        `shapes` is None where they could not be seen, `error` the type of what was raised. One
        that `has_waited` was asked for by another thread, and stood in line at first.
        """
        ...
