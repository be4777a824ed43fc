"""Opens any file of what ran; the start of the file tells its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.files.recorded_trace import RecordedTrace
from pytest_modelperf.tracing.files.stored_profile import read_stored_profile
from pytest_modelperf.tracing.records import TRACE_HEAD, Event

_HEAD_CHARACTERS = 4096
# The start of a profile of ONNX Runtime that chrome://tracing saved.
_SAVED = re.compile(r'\{\s*"traceEvents"')


class ProfileSource(Struct, frozen=True):
    """The events of a file, to be read once; after that, `notes` say what is missing.

    `about` is the kind of the file.
    """

    events: Iterable[Event]
    notes: Callable[[], tuple[str, ...]]
    about: str


def open_profile(path: str | Path) -> ProfileSource:
    """Open a profile of ONNX Runtime, a stored profile, or a recorded trace."""
    head = _head(Path(path))
    if head.startswith(TRACE_HEAD):
        trace = RecordedTrace(path)
        return ProfileSource(trace, lambda: trace.notes, "a recorded trace")
    if head.startswith("{") and _SAVED.match(head) is None:
        stored = read_stored_profile(path)
        return ProfileSource(stored.events(), lambda: stored.notes, "modelperf profile --json")
    profile = OrtProfile(path)
    return ProfileSource(profile, lambda: profile.notes, "a profile of ONNX Runtime")


def _head(path: Path) -> str:
    try:
        require_file(path)
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return file.read(_HEAD_CHARACTERS).lstrip()
    except OSError as error:
        raise UsageError(
            f"cannot read {printable(str(path))}: {error.strerror or error}."
        ) from error
