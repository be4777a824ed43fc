"""Records of an engine's sessions while a program runs them, and the watcher of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

PLAN_FILE = "plan.onnx"

# Name, shape and type of an input of an inference. The type is any object whose `str` is its name:
# making that string takes longer than all the rest.
InputShape: TypeAlias = tuple[str, tuple[int, ...], object]
InputShapes: TypeAlias = tuple[InputShape, ...]


@dataclass(slots=True, eq=False)
class WatchedSession:
    """The facts of a session, kept after it has ended; times are of `perf_counter_ns`.

    `model` is a file that holds its model. `folder` is where it writes a profile for us; if it
    writes none, `why` gives the reason. `begun_ns` is when its profile began, and `profiles` are
    the finished ones. Our profile ends after `calls_left` calls, if these are counted; `is_limited`
    is true once it has.
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
        """The runtime's optimized graph of the model, if it saved one."""
        path = None if self.folder is None else self.folder / PLAN_FILE
        return path.read_bytes() if path is not None and path.is_file() else None


class Watcher(Protocol):
    """A receiver of sessions and inferences, on the threads that they run on."""

    def new_folder(self) -> Path | None:
        """Return an empty folder for the profile of a session, or None if no profile is wanted."""

    def on_session(self, session: WatchedSession, start_ns: int, end_ns: int) -> None: ...

    def on_profile_written(self, session: WatchedSession, start_ns: int, end_ns: int) -> None:
        """Note that the runtime wrote a session's profile, for which the program had to wait."""

    def on_inference(  # noqa: PLR0913, PLR0917  # a record of them would cost as much as all the rest
        self,
        session: WatchedSession,
        method: str,
        start_ns: int,
        end_ns: int,
        shapes: InputShapes | None,
        error: str | None,
        has_waited: bool = False,  # noqa: FBT001, FBT002  # the same
    ) -> None:
        """Note that an inference has ended on the current thread.

        `shapes` is None if they are unknown, and `error` is the type of the exception. An inference
        that `has_waited` was requested by another thread and was queued first.
        """

    def on_callback_end(self) -> None:
        """Note that a callback has ended on this thread, which may begin a queued inference."""
