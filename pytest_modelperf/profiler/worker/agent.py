"""The program of a worker: it loads models, times inferences, and answers one request at a time.

Its source is sent through the gateway, after the modules that it imports from this package and
before the engine. So it needs the standard library, numpy and the engine, but not this package. It
decides nothing: the other side determines how often to run and when to stop, over a channel that
carries plain values.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pytest_modelperf.profiler.worker.process import (
    Meter,
    describe_platform,
    heartbeat,
    other_threads,
    pin,
    redirect_output,
)
from pytest_modelperf.profiler.worker.sessions import (
    LostProcessorsError,
    ModelLocation,
    ModelSessions,
    describe_spans,
    move_spans,
    read_spans,
)
from pytest_modelperf.profiler.worker.starter import Channel, take_module
from pytest_modelperf.profiler.worker.timing import Clock, ClocksError, paused_gc, time_within
from pytest_modelperf.systems.process import OWN_PROCESS

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine

ENGINE_MODULE = "modelperf_engine"
QUANTIZER_MODULE = "modelperf_quantizer"
# Warm-up inferences of each session before profiled runs.
_PROFILE_WARMUP = 3
# The most frames of a traceback that are sent, and the frames that are not the user's code.
_MOST_FRAMES = 30
_OWN_FILES = ("<pytest_modelperf.", "<frozen ")
_OWN_FOLDER = os.path.join("", "pytest_modelperf", "profiler", "")  # noqa: PTH118  # paths are strings on this side
# The fewest profiled sessions that show how certain the times of kernels are.
_FEWEST_SESSIONS = 3


class Agent(ModelSessions):
    """The requests to a worker. Each `do_` method answers one of them."""

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        meter: Meter | None = None,
        heartbeat: Callable[[], AbstractContextManager[None]] = nullcontext,
        process_clock: Clock = time.process_time_ns,
        run: Callable[[Callable[[], Any]], Any] | None = None,
    ) -> None:
        super().__init__(clock, meter, process_clock, run)
        # The context for work that may take longer than the other side waits for an answer.
        self._heartbeat = heartbeat
        self._quantize_file: Callable[..., Sequence[str]] | None = None
        self._folder = ""
        self._is_child = False
        self._affinity: list[int] | None = None
        self._own_paths: Sequence[str] = ()
        self._inherited: Sequence[str] = ()

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one request: its result, or its error."""
        arguments = dict(request)
        command = arguments.pop("command")
        try:
            return {"ok": getattr(self, f"do_{command}")(**arguments)}
        except Exception as error:  # noqa: BLE001  # sent to the other side, which raises it
            return {"error": describe_error(error)}

    def do_begin(  # noqa: PLR0913, PLR0917  # one for each setting of the other side
        self,
        cores: int,
        is_child: bool = True,  # noqa: FBT001, FBT002  # by keyword
        cgroup_files: Sequence[str] = (),
        folder: str | None = None,
        log: str | None = None,
        paths: Sequence[str] = (),
        is_whole_path: bool = False,  # noqa: FBT001, FBT002  # the same
        inherited: Sequence[str] = (),
        place: int = 0,
    ) -> dict[str, Any]:
        """Make this process ready: its own group, its log, its processors, its modules.

        Without `cores`, it is not pinned; for `place` see `pin`. The `paths` replace all of
        `sys.path`, or come after what this interpreter has installed. The `inherited` paths, which
        it found in its environment, come last.
        """
        self._is_child = is_child
        if is_child:
            OWN_PROCESS.settle()
            # A model that is being measured must not be traced as well.
            os.environ.pop("MODELPERF_TRACE", None)
            os.environ.pop("MODELPERF_SESSION_LOG", None)
            if folder is not None:
                # Temporary files that an engine leaves behind are removed with the worker.
                os.environ["TMPDIR"] = folder
        if log is not None:
            redirect_output(log)
        if is_whole_path:
            sys.path[:] = paths
        elif is_child:
            last = set(inherited)
            # A file next to the model may have the name of a module that is imported later.
            self._own_paths = [p for p in sys.path if p and os.path.abspath(p) not in last]  # noqa: PTH100  # paths are strings on this side
            self._inherited = inherited
            self.do_paths(paths)
        self._folder = folder or tempfile.mkdtemp(prefix="modelperf-")
        self._affinity = OWN_PROCESS.allowed_processors()
        facts = describe_platform()
        pinned, why = pin(cores, place) if cores else (None, None)
        self._cores = 0 if pinned is None else len(pinned)
        self._other_threads = other_threads()
        self._meter = Meter(tuple(cgroup_files), pinned)
        return {
            "pid": os.getpid(),
            "processors": pinned,
            "unpinned_because": why,
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "processors_allowed": None if self._affinity is None else len(self._affinity),
            "platform": facts,
        }

    def do_paths(self, paths: Sequence[str]) -> None:
        """Import modules that this interpreter does not have from these folders."""
        sys.path[:] = dict.fromkeys((*self._own_paths, *paths, *self._inherited))

    def do_put(self, name: str, data: bytes, start: bool) -> str:  # noqa: FBT001  # by keyword
        """Write a piece of a file into the worker's own folder, and return the file's path."""
        path = os.path.join(self._folder, name)  # noqa: PTH118  # paths are strings on this side
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb" if start else "ab") as file:  # noqa: PTH123
            file.write(data)
        return path

    def do_engine(
        self, source: str, file: str, options: Mapping[str, str], code: bytes | None = None
    ) -> dict[str, Any]:
        # Imported objects stay, so collecting garbage here finds almost none.
        with paused_gc() if self._is_child else nullcontext():
            module = take_module(ENGINE_MODULE, source, file, code)
            self.use_engine(cast("Engine", module))
            described = dict(module.describe(dict(options)))
            if self._is_child:
                # A collection that goes through them before each block would take longer than most
                # blocks.
                gc.collect()
                gc.freeze()
        return described

    def do_variant_options(
        self,
        kind: str,
        value: Any,  # noqa: ANN401  # a precision, or a share
        options: Mapping[str, str],
    ) -> dict[str, str] | None:
        """Return the options of a variant, or None if the engine has no method for its kind."""
        options_for = getattr(self._require_engine(), f"{kind}_options", None)
        return None if options_for is None else dict(options_for(value, dict(options)))

    def do_layers(  # noqa: PLR0913, PLR0917  # the same
        self,
        models: Sequence[Mapping[str, Any]],
        threads: int,
        options: Mapping[str, str],
        warmup_ns: int,
        limits: Sequence[tuple[int, int | None]],
        are_plans: bool = False,  # noqa: FBT001, FBT002  # by keyword
        sessions: int = 1,
    ) -> list[dict[str, Any]] | None:
        """Return kernel times of profiled sessions of each model, or None if the engine has none.

        The models run in turn, each with the session that is loaded as its `beside`, so that
        all have the same conditions. `limits` are those of `time_within`, for the runs of all
        sessions of a model. No further session begins once the time of the last limit is over and
        the first model has its runs. The sessions that show how certain the times are still run if
        the longest time allows. Plans run as they are.
        """
        engine = self._require_engine()
        if not hasattr(engine, "plan_options" if are_plans else "load_profiled"):
            return None
        chosen = engine.plan_options(options) if are_plans else dict(options)
        share = [
            (math.ceil(turns / sessions), None if ns is None else ns // sessions)
            for turns, ns in limits
        ]
        reports: list[dict[str, Any]] = []
        begun = self._clock()
        for number in range(sessions):
            spent_ns = self._clock() - begun
            has_enough = bool(reports) and len(reports[0]["run_ns"]) >= limits[0][0]
            if has_enough and spent_ns > (limits[-1][1] or 0):
                longest_ns = max(ns or 0 for _, ns in limits)
                if number >= _FEWEST_SESSIONS or spent_ns / number > longest_ns - spent_ns:
                    break
            warmup = (_PROFILE_WARMUP, warmup_ns // sessions)
            # A fast model runs 1 % faster in the session that is loaded second.
            step = -1 if number % 2 else 1
            made = self._profile_once(engine, models[::step], threads, chosen, [warmup], share)
            made = made[::step]
            reports = made if number == 0 else list(map(_joined, reports, made))
        return reports

    def _profile_once(  # noqa: PLR0913, PLR0917  # the same
        self,
        engine: Engine,
        models: Sequence[Mapping[str, Any]],
        threads: int,
        options: Mapping[str, str],
        warmup: Sequence[tuple[int, int | None]],
        limits: Sequence[tuple[int, int | None]],
    ) -> list[dict[str, Any]]:
        profiled, infers = [], []
        for model in models:
            ref = ModelLocation(model["model"], model["folder"])
            session = engine.load_profiled(ref, threads, dict(options), self._folder)
            profiled.append(session)
            infers.append(self._prepared(session, model["feed"]))
        others = [model["beside"] for model in models if model["beside"] is not None]
        infers += [self._infer[side][0] for side in others]
        with paused_gc():
            time_within(infers, warmup, self._clock)
            runs = time_within(infers, limits, self._clock)
        self._require_processors()
        plain = dict(zip(others, runs[len(models) :]))  # noqa: B905
        reports = []
        for model, session, times in zip(models, profiled, runs):  # noqa: B905
            report = session.report(len(times))
            session.close()
            unprofiled = plain.get(model["beside"])
            plain_ns = [] if unprofiled is None else unprofiled.tolist()
            runs_of_one = {"run_ns": times.tolist(), "sessions": [len(times)]}
            reports.append({**report, **runs_of_one, "plain_ns": plain_ns})
        return reports

    def do_plan(  # noqa: PLR0913, PLR0917  # the same
        self,
        model: str,
        folder: str | None,
        threads: int,
        options: Mapping[str, str],
        name: str,
        side: str | None = None,
    ) -> dict[str, Any] | None:
        """Return the plan that the engine makes of a model, or None if it cannot show it.

        The plan is written into a folder of this name, with the file of its weights next to it. If
        the engine can, the session that made the plan is kept for the next `open` of a `side`.
        """
        engine = self._require_engine()
        if not hasattr(engine, "save_plan"):
            return None
        own = os.path.join(self._folder, name)  # noqa: PTH118  # paths are strings on this side
        shutil.rmtree(own, ignore_errors=True)
        os.makedirs(own)  # noqa: PTH103
        ref = ModelLocation(model, folder)
        if side is not None and hasattr(engine, "load_and_save_plan"):
            path = self._load(
                side, lambda: engine.load_and_save_plan(ref, threads, dict(options), own)
            )
        else:
            path = engine.save_plan(ref, threads, dict(options), own)
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
        runs_parts = not hasattr(engine, "runs_parts") or engine.runs_parts(options)
        return {"path": path, "data": data, "runs_parts": runs_parts}

    def do_weights(
        self, file: str, spans: Sequence[tuple[int, int, str]]
    ) -> list[tuple[bytes, float]]:
        with self._heartbeat():
            return describe_spans(file, spans)

    def do_spans(self, file: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._heartbeat():
            return read_spans(file, spans)

    def do_move(self, source: str, target: str, moves: Sequence[tuple[int, int, int]]) -> None:
        with self._heartbeat():
            move_spans(source, target, moves)

    def do_kernels(
        self, model: str, folder: str | None, threads: int, options: Mapping[str, str], feed: str
    ) -> dict[str, Any] | None:
        """Return the kernels of a model from one inference, or None if the engine has none."""
        engine = self._require_engine()
        if not hasattr(engine, "load_profiled"):
            return None
        ref = ModelLocation(model, folder)
        session = engine.load_profiled(ref, threads, dict(options), self._folder)
        try:
            self._prepared(session, feed)()
            return session.report(1)
        finally:
            session.close()

    def do_shapes(
        self, model: str, folder: str | None, options: Mapping[str, str], feed: str = ""
    ) -> list[dict[str, Any]] | None:
        """Return the shapes that one run saw, or None if the engine cannot observe them."""
        engine = self._require_engine()
        if not hasattr(engine, "observe_shapes"):
            return None
        ref, fed = ModelLocation(model, folder), self._feeds[feed]
        return engine.observe_shapes(ref, dict(options), fed.arrays, fed.dtypes, self._folder)

    def do_memory(self) -> dict[str, Any]:
        peaks = [p for s in self._sessions.values() if (p := s.peak_bytes()) is not None]
        return {
            "peak_rss_bytes": OWN_PROCESS.peak_bytes(),
            "rss_bytes": OWN_PROCESS.resident_bytes(),
            "engine_peak_bytes": max(peaks, default=None),
            "available_bytes": OWN_PROCESS.available_bytes(),
        }

    def do_end(self) -> None:
        """Close everything and remove all files. A server may start its next worker from here."""
        for side in list(self._sessions):
            self.do_close(side)
        if self._affinity is not None:
            OWN_PROCESS.use_processors(self._affinity)
        shutil.rmtree(self._folder, ignore_errors=True)

    def do_quantizer(self, source: str, file: str) -> dict[str, Any]:
        """Load a quantizer from its source, and return what it raised, if anything."""
        try:
            self._quantize_file = take_module(QUANTIZER_MODULE, source, file).quantize_file
        except Exception as error:  # noqa: BLE001  # the other side has its own message for it
            return {"raised": describe_error(error)}
        return {}

    def do_quantize(  # noqa: PLR0913, PLR0917  # the settings of a quantizer
        self,
        source: str,
        target: str,
        form: str,
        feeds: Sequence[str],
        folder: str,
        is_large: bool,  # noqa: FBT001  # by keyword
    ) -> dict[str, Any]:
        """Run the quantizer. Each later feed takes the inputs that it lacks from the first."""
        if self._quantize_file is None:
            raise RuntimeError("no quantizer was taken")
        arrays = [{**self._feeds[feeds[0]].arrays, **self._feeds[name].arrays} for name in feeds]
        try:
            with self._heartbeat():
                notes = self._quantize_file(source, target, form, arrays, folder, is_large=is_large)
        except Exception as error:  # noqa: BLE001  # the same
            return {"raised": describe_error(error)}
        return {"notes": list(notes)}


def describe_error(error: BaseException) -> dict[str, Any]:
    return {
        "kind": error_kind(error),
        "type": type(error).__name__,
        "message": _utf8(str(error)),
        "name": getattr(error, "name", None),
        "trace": _utf8(_trace_of(error)),
    }


def _utf8(text: str) -> str:
    """Return the text in a form that can be sent, with half characters of file names escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace_of(error: BaseException) -> str:
    trace = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES)
    each: traceback.TracebackException | None = trace
    while each is not None:
        each.stack[:] = [
            frame
            for frame in each.stack
            if not frame.filename.startswith(_OWN_FILES) and _OWN_FOLDER not in frame.filename
        ]
        each = each.__cause__ or each.__context__
    return "".join(trace.format()) if trace.stack else ""


_KINDS = {LostProcessorsError: "processors", ClocksError: "clocks"}


def error_kind(error: BaseException) -> str:
    # Libraries may raise it with only a message of their own; it then has no name.
    if isinstance(error, ModuleNotFoundError) and error.name:
        return "missing"
    for own, kind in _KINDS.items():
        if isinstance(error, own):
            return kind
    if type(error).__name__ == "OptionError":
        return "option"
    text = str(error).lower()
    if isinstance(error, MemoryError) or "bad_alloc" in text or "failed to allocate" in text:
        return "memory"
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    # ONNX Runtime does not report the system's reason.
    if is_full or "failed to write external initializers" in text:
        return "disk"
    return "failed"


def serve(channel: Channel) -> None:
    """Answer the requests of the channel until it is closed.

    While an answer takes long, None is sent regularly as long as Python code runs.
    """
    agent = Agent(heartbeat=partial(heartbeat, partial(channel.send, None)))
    try:
        for request in channel:
            answer = agent.handle(request)
            try:
                channel.send(answer)
            except TypeError as error:
                channel.send({"error": describe_error(error)})
            if request["command"] == "end":
                return
    finally:
        # The other side may be gone without notice.
        agent.do_end()


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a session with the runs of another one added to it.

    The kernels of the other one may be in any order. If the engine has made another plan of the
    same model, its kernels differ, and the first report is returned as it is.
    """
    own, others = (sorted(r["kernels"], key=lambda k: str(k["name"])) for r in (one, other))
    pairs = list(zip(own, others))  # noqa: B905
    keys = ("name", "op_type", "provider", "precision")
    if len(own) != len(others) or any(a[key] != b[key] for a, b in pairs for key in keys):
        return one
    more = {id(a): b["self_ns"] for a, b in pairs}
    peaks = [r["peak_bytes"] for r in (one, other) if r["peak_bytes"] is not None]
    return {
        **one,
        "kernels": [{**k, "self_ns": [*k["self_ns"], *more[id(k)]]} for k in one["kernels"]],
        "peak_bytes": max(peaks) if peaks else None,
        **{name: [*one[name], *other[name]] for name in ("run_ns", "sessions", "plain_ns")},
    }
