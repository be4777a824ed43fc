"""Watch the sessions of ONNX Runtime that a program creates and runs.

While it watches, methods of `InferenceSession` are wrapped, so that the program stays unchanged. A
session that is created then writes a profile into a folder of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from pytest_modelperf.profiler.engines.onnxruntime_methods import RUNS, WrappedMethods, make_way
from pytest_modelperf.profiler.engines.session_facts import (
    PLAN_FILE,
    InputShape,
    InputShapes,
    WatchedSession,
    Watcher,
)

VERSION: str = ort.__version__

# The runtime keeps the weights in memory twice when it saves the plan of a model.
MAX_PLANNED_BYTES = 512 * 1024 * 1024
# A model in memory is saved to a file, because it may be read after the session has ended.
MAX_KEPT_BYTES = 64 * 1024 * 1024
_CPU = "CPUExecutionProvider"
_WEIGHTS_FILE, _MODEL_FILE = "plan.weights", "model.onnx"
_PROFILES = "profile*.json"
_ENTRY = "session.optimized_model_external_initializers"
_ERRORS_ONLY = 3
_SLACK_NS = 1_000_000
_LOOKS = 5


def create_session(model: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # no types
    """Create an `InferenceSession` from a path, bytes, or an ONNX message."""
    serialize = getattr(model, "SerializeToString", None)
    source = model if serialize is None else serialize()
    return ort.InferenceSession(source, *arguments, **named)


class SessionWatch:
    """Reports every session of this process to a watcher, from `begin` to `end`."""

    def __init__(self, watcher: Watcher, operator_limit: int | None) -> None:
        self.sessions: list[WatchedSession] = []
        self._operator_limit = operator_limit
        self._watcher = watcher
        self._process = os.getpid()
        self._is_on = False
        self._lock = threading.RLock()
        # Held while a model loads, which may take minutes.
        self._options_lock = threading.RLock()
        self._known: weakref.WeakKeyDictionary[Any, WatchedSession] = weakref.WeakKeyDictionary()
        # The same by `id`, which is quicker to find; an entry is removed with its session.
        self._known_by_id: dict[int, WatchedSession] = {}
        self._methods = WrappedMethods()
        self._bindings = SeenBindings()
        # The files of models in memory, by length and hash.
        self._kept: dict[tuple[int, int], Path] = {}

    def begin(self) -> None:
        self._is_on = True
        _WATCHES.add(self)
        makers: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
            "__init__": self._creating,
            "set_providers": self._recreating,
            "end_profiling": self._ending,
            "run_async": self._running_later,
        }
        makers |= {name: functools.partial(self._running, name) for name in RUNS}
        make_way()
        for name, make in makers.items():
            self._methods.wrap(name, make)
        self._bindings.begin()

    def leave(self) -> None:
        """Stop reporting in a forked process: the watcher belongs to the parent."""
        self._is_on = False
        self._put_back()

    def _put_back(self) -> None:
        self._methods.put_back()
        self._bindings.put_back()

    def end(self) -> None:
        """Restore the methods, and finish the profiles that are still open."""
        self._is_on = False
        _WATCHES.discard(self)
        self._put_back()
        if os.getpid() != self._process:
            return
        for session, watched in list(self._known.items()):
            self._collect(session, watched)
        for watched in self.sessions:
            # A session that was freed has already written its profile.
            if watched.folder is not None and not watched.profiles:
                watched.profiles.extend(sorted(watched.folder.glob(_PROFILES)))

    def give_up(self, session: Any) -> None:  # noqa: ANN401  # the runtime has no types
        """End the profile of a session, which will not be read."""
        watched = self._known.pop(session, None)
        if watched is not None:
            self._collect(session, watched)

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(  # noqa: N807  # it replaces that method
            session: Any,  # noqa: ANN401  # the runtime has no types
            path_or_bytes: Any,  # noqa: ANN401
            sess_options: Any = None,  # noqa: ANN401
            *arguments: Any,  # noqa: ANN401
            **named: Any,  # noqa: ANN401
        ) -> None:
            def create(options: Any) -> None:  # noqa: ANN401
                original(session, path_or_bytes, options, *arguments, **named)

            if not self._is_on:
                create(sess_options)
                return
            watched = _watched(path_or_bytes)
            providers = arguments[0] if arguments else named.get("providers")
            has_plan = _is_planned(path_or_bytes, providers)
            start_ns = self._create(watched, create, sess_options, has_plan=has_plan)
            end_ns = time.perf_counter_ns()
            watched.begun_ns = self._begun_ns(session, start_ns, end_ns)
            self._keep_model(watched, path_or_bytes)
            if watched.folder is not None:
                watched.calls_left = self._operator_limit or 0
            self._add(session, watched)
            self._watcher.on_session(watched, start_ns, end_ns)

        return __init__

    def _create(
        self,
        watched: WatchedSession,
        create: Callable[[Any], None],
        options: Any,  # noqa: ANN401
        *,
        has_plan: bool,
    ) -> int:
        """Create the session, with a profile if possible, and return when the profile began."""
        # Another thread may have changed these options for a session of its own.
        with self._options_lock:
            # The runtime itself refuses an object that has no such setting.
            has_own = options is not None and getattr(options, "enable_profiling", True)
        if has_own:
            watched.why = "it writes a profile of its own"
        # If the file is missing, the runtime would also print that it wrote no profile.
        elif watched.model is None or os.path.exists(watched.model):  # noqa: PTH110  # never raises
            watched.folder = self._watcher.new_folder()
        folder = watched.folder
        if folder is None:
            start_ns = time.perf_counter_ns()
            create(options)
            return start_ns
        made = ort.SessionOptions() if options is None else options
        # The program's options are changed for a moment, and several threads may share them.
        with self._options_lock if options is not None else contextlib.nullcontext():
            try:
                # Saving the plan must never prevent a session.
                for saves_plan in (True, False) if has_plan else (False,):
                    with _profiled(made, folder, saves_plan=saves_plan):
                        start_ns = time.perf_counter_ns()
                        try:
                            create(made)
                        except Exception:
                            if not saves_plan:
                                raise
                            continue
                    break
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return start_ns

    def _keep_model(self, watched: WatchedSession, source: Any) -> None:  # noqa: ANN401
        """Save a model in memory to a file: one file for all sessions of the same model."""
        if watched.folder is None or not isinstance(source, bytes) or len(source) > MAX_KEPT_BYTES:
            return
        with contextlib.suppress(OSError):
            key = len(source), hash(source)
            if key not in self._kept:
                path = watched.folder / _MODEL_FILE
                path.write_bytes(source)
                self._kept[key] = path
            watched.model = self._kept[key]

    def _recreating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_providers(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            watched = self._known.get(session) if self._is_on else None
            if watched is not None and watched.folder is not None:
                self._collect(session, watched)
                watched.why = "its providers were set again, which ended its profile"
            return original(session, *arguments, **named)

        return set_providers

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def end_profiling(session: Any) -> Any:  # noqa: ANN401
            watched = self._known.get(session) if self._is_on else None
            if watched is None:
                return original(session)
            if watched.folder is not None:
                # The program did not ask for this profile, so it does not see it.
                return ""
            path = original(session)
            if path:
                watched.profiles.append(Path(path).absolute())
            return path

        return end_profiling

    def _collect(self, session: Any, watched: WatchedSession) -> None:  # noqa: ANN401
        if watched.folder is not None and not watched.profiles:
            path = self._methods.originals["end_profiling"](session)
            if path:
                watched.profiles.append(Path(path))

    def _count(self, session: Any, watched: WatchedSession) -> None:  # noqa: ANN401
        """Count an inference of the session's profile, and end the profile after the last one.

        A thread whose inference ends then waits, so that it does not begin another in the profile.
        """
        left = watched.calls_left - 1
        if left > 0:
            watched.calls_left = left
            return
        with self._lock:
            if watched.profiles or not self._is_on:
                watched.calls_left = 0
                return
            start_ns = time.perf_counter_ns()
            self._collect(session, watched)
            end_ns = time.perf_counter_ns()
            watched.calls_left = 0
            watched.is_limited = True
            watched.why = f"operator_limit is {self._operator_limit:,}"
        self._watcher.on_profile_written(watched, start_ns, end_ns)

    def _add(self, session: Any, watched: WatchedSession) -> None:  # noqa: ANN401
        with self._lock:
            self.sessions.append(watched)
            self._known[session] = watched
            self._known_by_id[id(session)] = watched
            gone = weakref.finalize(session, self._known_by_id.pop, id(session), None)
            gone.atexit = False

    def _find(self, session: Any) -> WatchedSession:  # noqa: ANN401
        watched = self._known.get(session)
        if watched is None:
            with self._lock:
                watched = self._known.get(session)
                if watched is None:
                    watched = _watched(getattr(session, "_model_path", None))
                    watched.why = "it was created before the profile began"
                    _give_up(session)
                    self._add(session, watched)
        return watched

    def _begun_ns(self, session: Any, start_ns: int, end_ns: int) -> int:  # noqa: ANN401
        """Return when the profile began, converted from the runtime's clock."""
        told_ns = int(session.get_profiling_start_time_ns())
        for read in (time.time_ns, time.monotonic_ns):
            begun_ns = told_ns - self._ahead_ns(read)
            if start_ns - _SLACK_NS <= begun_ns <= end_ns + _SLACK_NS:
                return begun_ns
        return start_ns

    def _ahead_ns(self, read: Callable[[], int]) -> int:
        """Return how far another clock is ahead of ours, from the quickest of several readings."""
        looks = []
        for _ in range(_LOOKS):
            before_ns = time.perf_counter_ns()
            other_ns = read()
            after_ns = time.perf_counter_ns()
            looks.append((after_ns - before_ns, other_ns - (before_ns + after_ns) // 2))
        return min(looks)[1]

    def _running(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, find_shapes = time.perf_counter_ns, shapes_finder(method, self._bindings)
        find, report, count = self._find, self._watcher.on_inference, self._count
        known = self._known_by_id

        # All of this is overhead, and a small inference takes only 10 us.
        def run(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            if not self._is_on:
                return original(session, *arguments, **named)
            watched = known.get(id(session)) or find(session)
            error = None
            start_ns = clock()
            try:
                return original(session, *arguments, **named)
            except BaseException as raised:
                error = type(raised).__name__
                raise
            finally:
                end_ns = clock()
                shapes = find_shapes(arguments, named)
                report(watched, method, start_ns, end_ns, shapes, error)
                if watched.calls_left:
                    count(session, watched)

        return run

    def _running_later(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter_ns

        def run_async(  # noqa: PLR0913, PLR0917  # the runtime's signature
            session: Any,  # noqa: ANN401
            output_names: Any,  # noqa: ANN401
            input_feed: Any,  # noqa: ANN401
            callback: Callable[..., Any],
            user_data: Any,  # noqa: ANN401
            run_options: Any = None,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            if not self._is_on:
                return original(session, output_names, input_feed, callback, user_data, run_options)
            watched = self._find(session)
            shapes = feed_shapes(input_feed)
            start_ns = clock()

            def ended(results: Any, data: Any, problem: str) -> Any:  # noqa: ANN401
                end_ns = clock()
                if self._is_on:
                    error = problem or None
                    self._watcher.on_inference(
                        watched, "run_async", start_ns, end_ns, shapes, error, has_waited=True
                    )
                    if watched.calls_left:
                        self._count(session, watched)
                try:
                    return callback(results, data, problem)
                finally:
                    self._watcher.on_callback_end()

            return original(session, output_names, input_feed, ended, user_data, run_options)

        return run_async


# A forked process reports nothing. Each watch is stopped once in it, because checking the process
# id at each inference would take a system call.
_WATCHES: weakref.WeakSet[SessionWatch] = weakref.WeakSet()
# Watches whose profiles this process inherited with their sessions.
_LEFT: list[SessionWatch] = []


def _leave_forked() -> None:
    for watch in list(_WATCHES):
        watch.leave()
        _WATCHES.discard(watch)
        _LEFT.append(watch)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_forked)


def _give_up(session: Any) -> None:  # noqa: ANN401
    """End the profile of a session that was watched in the parent of this forked process."""
    # Otherwise the runtime would keep the events of every operator in memory, without limit.
    for watch in _LEFT:
        watch.give_up(session)


def _watched(source: Any) -> WatchedSession:  # noqa: ANN401
    if not isinstance(source, str | os.PathLike):
        return WatchedSession()
    path = Path(os.fsdecode(source))
    return WatchedSession(path.absolute(), path.name)


@contextlib.contextmanager
def _profiled(options: Any, folder: Path, *, saves_plan: bool) -> Iterator[None]:  # noqa: ANN401
    changed: dict[str, Any] = {
        "enable_profiling": True,
        "profile_file_prefix": str(folder / "profile"),
    }
    if saves_plan and _save_weights_nowhere(options, folder):
        changed["optimized_model_filepath"] = str(folder / PLAN_FILE)
        if options.log_severity_level in (-1, _ERRORS_ONLY - 1):
            # The runtime would warn about the plan, which the program did not ask for.
            changed["log_severity_level"] = _ERRORS_ONLY
    before = {name: getattr(options, name) for name in changed}
    for name, value in changed.items():
        setattr(options, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def _save_weights_nowhere(options: Any, folder: Path) -> bool:  # noqa: ANN401
    """Discard the weights of the saved plan. Return False if the program saves plans of its own."""
    if options.optimized_model_filepath:
        if _entry(options, f"{_ENTRY}_file_name") == _WEIGHTS_FILE:
            # An earlier session has set it.
            options.add_session_config_entry(f"{_ENTRY}_file_name", "")
        return False
    # A link to the null device, because the runtime deletes a file of weights that stays empty. If
    # links are not allowed, as on most Windows, the weights go into the folder.
    with contextlib.suppress(OSError):
        (folder / _WEIGHTS_FILE).symlink_to(os.devnull)
    for key, value in (("file_name", _WEIGHTS_FILE), ("min_size_in_bytes", "64")):
        present = _entry(options, f"{_ENTRY}_{key}")
        if present is None:
            options.add_session_config_entry(f"{_ENTRY}_{key}", value)
        elif present != value:
            return False
    return True


def _entry(options: Any, key: str) -> str | None:  # noqa: ANN401
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return None


def _is_planned(source: Any, providers: Any) -> bool:  # noqa: ANN401
    """Whether the plan of a session can be saved at a negligible cost."""
    names = [name if isinstance(name, str) else name[0] for name in providers or ()]
    if set(names) - {_CPU}:
        # A provider that compiles its part cannot save a plan, and the program would see the error.
        return False
    if isinstance(source, bytes):
        return len(source) <= MAX_PLANNED_BYTES and source[4:8] != b"ORTM"
    try:
        path = Path(os.fsdecode(source))
        return path.suffix != ".ort" and path.stat().st_size <= MAX_PLANNED_BYTES
    except (OSError, TypeError, ValueError):
        return False


class SeenBindings:
    """The shapes of the inputs that a program binds, which an `IOBinding` itself does not show."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, dict[str, InputShape]]
        self._known = weakref.WeakKeyDictionary()
        self._methods = WrappedMethods(ort.IOBinding)

    def begin(self) -> None:
        self._methods.wrap("bind_cpu_input", self._binding)
        self._methods.wrap("bind_ortvalue_input", self._binding)
        self._methods.wrap("bind_input", self._binding_memory)
        self._methods.wrap("clear_binding_inputs", self._clearing)

    def put_back(self) -> None:
        self._methods.put_back()

    def shapes(self, binding: Any) -> InputShapes | None:  # noqa: ANN401  # the runtime has no types
        """Return the shapes that were bound while the methods were wrapped, or None without any."""
        known = self._known.get(binding)
        return tuple(known.values()) if known else None

    def _binding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bind(binding: Any, name: Any, value: Any) -> Any:  # noqa: ANN401
            found = original(binding, name, value)
            self._keep(binding, _described(name, value))
            return found

        return bind

    def _binding_memory(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bind_input(  # noqa: PLR0913, PLR0917  # the runtime's signature
            binding: Any,  # noqa: ANN401
            name: Any,  # noqa: ANN401
            device_type: Any,  # noqa: ANN401
            device_id: Any,  # noqa: ANN401
            element_type: Any,  # noqa: ANN401
            shape: Any,  # noqa: ANN401
            buffer_ptr: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            found = original(binding, name, device_type, device_id, element_type, shape, buffer_ptr)
            # ONNX's own types are numbers.
            kind = getattr(element_type, "__name__", None) or str(element_type)
            self._keep(binding, (name, tuple(map(int, shape)), kind))
            return found

        return bind_input

    def _clearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clear_binding_inputs(binding: Any) -> Any:  # noqa: ANN401
            self._known.pop(binding, None)
            return original(binding)

        return clear_binding_inputs

    def _keep(self, binding: Any, described: InputShape | None) -> None:  # noqa: ANN401
        if described is not None:
            self._known.setdefault(binding, {})[described[0]] = described


def shapes_finder(
    method: str, bindings: SeenBindings
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], InputShapes | None]:
    """Return the function that reads the shapes of the inputs from the arguments of a method."""
    place = RUNS[method]
    if method == "run_with_iobinding":
        return lambda arguments, named: bindings.shapes(_at(place, arguments, named))
    if method == "run_with_ortvaluevector":
        names_at = (1, "feed_names")
        return lambda arguments, named: _shapes_of_vector(
            _at(names_at, arguments, named), _at(place, arguments, named)
        )
    return functools.partial(_shapes, place)


def feed_shapes(feed: Any) -> InputShapes | None:  # noqa: ANN401  # the runtime has no types
    """Return names, shapes and types of the inputs of a feed, or None if it has none by name."""
    return _shapes((0, ""), (feed,), {})


def _at(place: tuple[int, str], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    at, name = place
    return arguments[at] if len(arguments) > at else named.get(name)


def _shapes(
    place: tuple[int, str], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> InputShapes | None:
    feeds: Any = _at(place, arguments, named)
    try:
        # Nearly all inputs are arrays, and a small inference takes 10 us.
        found = [
            (key, value.shape, value.dtype) if type(value) is np.ndarray else _described(key, value)
            for key, value in feeds.items()
        ]
    except (AttributeError, TypeError):
        return None
    return _known(found)


def _shapes_of_vector(names: Any, values: Any) -> InputShapes | None:  # noqa: ANN401
    try:
        pairs = list(zip(names, values))  # noqa: B905  # 3.9 has no strict
    except TypeError:
        return None
    return _known([_described(name, value) for name, value in pairs])


def _known(described: Sequence[InputShape | None]) -> InputShapes | None:
    return tuple([each for each in described if each is not None]) or None


def _described(name: str, value: Any) -> InputShape | None:  # noqa: ANN401
    """Return name, shape and type of an input, or None if it has no shape, such as a sequence."""
    # The runtime also takes lists and numbers. It has checked that lists have equal lengths.
    outer: list[int] = []
    while isinstance(value, (list, tuple)):
        outer.append(len(value))
        if not value:
            return name, tuple(outer), "list"
        value = value[0]
    if isinstance(value, (bool, int, float, str, bytes)):
        return name, tuple(outer), "list" if outer else type(value).__name__
    try:
        shape = tuple(value.shape() if callable(value.shape) else value.shape)
        kind = str(value.dtype) if getattr(value, "dtype", None) is not None else value.data_type()
    except (AttributeError, RuntimeError, TypeError):
        return None
    return name, (*outer, *shape), kind
