"""The program of a worker: it loads models, times inferences, and answers one request at a time.

Its source is sent through the gateway, after the modules that it imports from this package and
before the engine. So it needs the standard library, numpy and the engine, but not this package. It
decides nothing: the other side says how often to run and when to stop, over a channel that carries
plain values.
"""

from __future__ import annotations

import errno
import gc
import itertools
import math
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pytest_modelperf.profiler.worker.clocks import (
    Clock,
    Clocks,
    ClocksError,
    measure_clocks,
)
from pytest_modelperf.profiler.worker.feeds import FeedArrays, align, read_feed
from pytest_modelperf.profiler.worker.meter import Meter
from pytest_modelperf.profiler.worker.process import (
    describe_platform,
    heartbeat,
    other_threads,
    pin,
    processors_left,
    redirect_output,
)
from pytest_modelperf.profiler.worker.starter import take_module
from pytest_modelperf.profiler.worker.timing import (
    Taken,
    TurnWatch,
    paused_gc,
    time_at_once,
    time_chains,
    time_one,
    time_within,
)
from pytest_modelperf.profiler.worker.weights import describe_spans, move_spans
from pytest_modelperf.systems.process import OWN_PROCESS

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine, Session, Steps

ENGINE_MODULE = "modelperf_engine"
QUANTIZER_MODULE = "modelperf_quantizer"
# Warm-up inferences of each session before profiled runs.
_PROFILE_WARMUP = 3
# The frames of a traceback that are sent, and those that say nothing of the user's code.
_MOST_FRAMES = 30
_OWN_FILES = ("<pytest_modelperf.", "<remote exec>", "<frozen ")
_OWN_FOLDER = os.path.join("", "pytest_modelperf", "profiler", "")  # noqa: PTH118  # paths are texts on this side
# The fewest profiled sessions that tell how sure the times of kernels are.
_FEWEST_SESSIONS = 3


class ModelLocation:
    """Where the model is: a file, and the folder of its external data if that is another."""

    def __init__(self, path: Any, folder: str | None) -> None:  # noqa: ANN401  # or a function
        self.path = path
        self.folder = folder


class LostProcessorsError(RuntimeError):
    """Processors were taken from this process, so its times are for fewer cores."""


class Agent:
    """The loaded models, and the requests about them; each `do_` method answers one."""

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        meter: Meter | None = None,
        heartbeat: Callable[[], AbstractContextManager[None]] = nullcontext,
        process_clock: Clock = time.process_time_ns,
        run: Callable[[Callable[[], Any]], Any] | None = None,
    ) -> None:
        # Has the thread that inferences belong to run a block of them; None: it is this one.
        self._run = run
        self._machine_clock = clock
        self._clock = clock
        self._process_clock = process_clock
        self._clocks: Clocks | None = None
        self._cores = 0
        # The threads that existed before this process was pinned.
        self._other_threads: frozenset[str] = frozenset()
        self._engine: Engine | None = None
        self._quantize_file: Callable[..., Sequence[str]] | None = None
        # The context for work that may take longer than the other side waits for an answer.
        self._heartbeat = heartbeat
        self._sessions: dict[str, Session] = {}
        # One function for each request that runs at once.
        self._infer: dict[str, list[Callable[[], Any]]] = {}
        self._feeds: dict[str, FeedArrays] = {}
        self._meter = meter or Meter((), None)
        self._folder = ""
        self._is_child = False
        self._affinity: list[int] | None = None

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request: what it asked for, or what went wrong."""
        arguments = dict(request)
        command = arguments.pop("command")
        try:
            return {"ok": getattr(self, f"do_{command}")(**arguments)}
        except Exception as error:  # noqa: BLE001  # told to the other side, which raises it
            return {"error": describe_error(error)}

    # -- the process

    def do_begin(  # noqa: PLR0913, PLR0917  # one for each thing that the other side may say
        self,
        cores: int,
        is_child: bool = True,  # noqa: FBT001, FBT002  # by keyword
        cgroup_files: Sequence[str] = (),
        folder: str | None = None,
        log: str | None = None,
        paths: Sequence[str] = (),
        is_whole_path: bool = False,  # noqa: FBT001, FBT002  # the same
        inherited: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Make this process ready: its own group, its log, its processors, its modules.

        Without `cores`, it is not pinned. The `paths` are all of `sys.path` or come after what
        this interpreter has installed. The `inherited` ones, which it found in its environment,
        come last.
        """
        self._is_child = is_child
        if is_child:
            OWN_PROCESS.settle()
            # A measured model is not traced as well.
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
            # A file beside the model may have the name of a module that is imported later.
            own = [p for p in sys.path if p and os.path.abspath(p) not in last]  # noqa: PTH100  # paths are texts on this side
            sys.path[:] = dict.fromkeys((*own, *paths, *inherited))
        self._folder = folder or tempfile.mkdtemp(prefix="modelperf-")
        self._affinity = OWN_PROCESS.allowed_processors()
        told = describe_platform()
        pinned, why = pin(cores) if cores else (None, None)
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
            "platform": told,
        }

    def do_put(self, name: str, data: bytes, start: bool) -> str:  # noqa: FBT001  # by keyword
        """Write a piece of a file into the worker's own folder; the path of that file."""
        path = os.path.join(self._folder, name)  # noqa: PTH118  # paths are texts on this side
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb" if start else "ab") as file:  # noqa: PTH123
            file.write(data)
        return path

    def do_engine(
        self, source: str, file: str, options: Mapping[str, str], code: bytes | None = None
    ) -> dict[str, Any]:
        """Load the engine from its source; returns its description."""
        module = take_module(ENGINE_MODULE, source, file, code)
        self.use_engine(cast("Engine", module))
        described = dict(module.describe(dict(options)))
        if self._is_child:
            # Imported objects stay, and collecting through them before each block would take longer
            # than most blocks.
            gc.collect()
            gc.freeze()
        return described

    def use_engine(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = getattr(engine, "clock_ns", self._machine_clock)

    def do_clocks(self) -> dict[str, Any] | None:
        """The ticks of the clocks here; None for an engine with a clock of its own."""
        if self._clock is not self._machine_clock:
            return None
        if self._clocks is None:
            self._clocks = measure_clocks(self._machine_clock, self._process_clock)
        return dict(vars(self._clocks))

    def do_variant_options(
        self,
        kind: str,
        value: Any,  # noqa: ANN401  # a precision, or a share
        options: Mapping[str, str],
    ) -> dict[str, str] | None:
        """The options of a variant; None if the engine has no method for its kind."""
        options_for = getattr(self._require_engine(), f"{kind}_options", None)
        return None if options_for is None else dict(options_for(value, dict(options)))

    # -- models

    def do_inputs(
        self, inputs: Mapping[str, Any], feed: str = "", steps: Mapping[str, Any] | None = None
    ) -> None:
        """Keep inputs for the inferences that name this feed; see `read_feed` for their form."""
        self._feeds[feed] = read_feed(inputs, steps)

    def do_open(  # noqa: PLR0913, PLR0917  # the same
        self,
        side: str,
        model: Any,  # noqa: ANN401  # a path, or a function where no process lies between
        folder: str | None,
        threads: int,
        options: Mapping[str, str],
        feed: str = "",
        streams: int = 1,
        is_part: bool = False,  # noqa: FBT001, FBT002  # by keyword
    ) -> dict[str, Any]:
        """Load a model as `side`, for so many requests at once; returns when and how long.

        Of a Python function it also returns the file. A part of a plan is loaded as it is, without
        optimizations.
        """
        engine = self._require_engine()
        chosen = dict(options)
        if streams > 1 and hasattr(engine, "stream_options"):
            chosen = {**engine.stream_options(streams, chosen), **chosen}
        gc.collect()
        load = engine.load_part if is_part else engine.load
        start = self._clock()
        session = load(ModelLocation(model, folder), threads, chosen)
        load_ns = self._clock() - start
        self._sessions[side] = session
        fed = self._feeds[feed]
        if streams > 1 and fed.steps is None and not hasattr(session, "prepare_another"):
            raise RuntimeError("this engine runs one request at a time on a session: one stream")
        self._infer[side] = [
            self._prepared(session, feed),
            *(
                session.prepare_another(fed.arrays, fed.dtypes)
                if fed.steps is None
                else self._prepared(session, feed)
                for _ in range(streams - 1)
            ),
        ]
        return {
            "begun_ns": start,
            "load_ns": load_ns,
            # Only a Python function is read from a file of its own choice.
            "file": getattr(session, "file", None),
        }

    def do_close(self, side: str) -> None:
        self._infer.pop(side, None)
        session = self._sessions.pop(side, None)
        if session is not None:
            session.close()

    def do_block(  # noqa: PLR0913, PLR0917  # one for each thing that the other side may say
        self,
        sides: Sequence[str],
        count: int,
        max_ns: int,
        seed: int = 0,
        first_step: int | None = None,
        parts: Mapping[str, Sequence[str]] | None = None,
        watches: bool = False,  # noqa: FBT001, FBT002  # by keyword
    ) -> dict[str, Any]:
        """Times of up to `count` inferences a side, in random order within each turn.

        For sides that take turns, and for one that it `watches`, also when each inference began and
        what disturbed it; for one side with several requests at once also the inferences per
        second. A generation goes on from
        `first_step`. The `parts` of a side run right after it in each turn, and once more without
        it when all turns are over.
        """
        infers = [self._infer[side] for side in sides]
        part_turns: dict[str, Any] = {}
        if first_step is not None:
            for each in itertools.chain.from_iterable(infers):
                cast("Steps", each).rewind(first_step)
        per_second = None
        before = self._meter.read()
        with paused_gc():
            begun = self._clock()
            if len(infers) > 1 or watches:
                order = random.Random(seed)  # noqa: S311  # an order, no secret
                own = [[self._infer[name][0] for name in (parts or {}).get(s, ())] for s in sides]
                chains = [[streams[0], *each] for streams, each in zip(infers, own)]  # noqa: B905
                watch = self._turn_watch()
                runs = time_chains(chains, count, max_ns, self._clock, order, watch)
                done = len(runs[0][0].times)
                alone = time_chains(own, done, max_ns, self._clock, order, watch) if parts else ()
                if watch is not None:
                    watch.close()
                taken = [run[0] for run in runs]
                times = [side.times for side in taken]
                part_turns = {
                    side: [
                        {"in_place": _turns(here), "alone": _turns(there)}
                        for here, there in zip(run[1:], hot)  # noqa: B905
                    ]
                    for side, run, hot in zip(sides, runs, alone)  # noqa: B905
                }
            elif len(infers[0]) > 1:
                all_times, per_second = time_at_once(infers[0], count, max_ns, self._clock)
                taken, times = [], [all_times]
            else:
                block = partial(time_one, infers[0][0], count, max_ns, self._clock)
                taken, times = [], [block() if self._run is None else self._run(block)]
        noise = self._meter.since(before)
        self._require_processors()
        return {
            "times": {side: t.tobytes() for side, t in zip(sides, times)},  # noqa: B905  # equal by construction, and 3.9 has no strict
            "begun_ns": begun,
            "turns": {side: _turns(t) for side, t in zip(sides, taken)} or None,  # noqa: B905
            "parts": part_turns,
            "per_second": per_second,
            "noise": noise,
        }

    def _turn_watch(self) -> TurnWatch | None:
        """None for an engine with a clock of its own: it simulates what it runs on."""
        if self._clock is not self._machine_clock:
            return None
        knows = self._clocks is None or self._clocks.knows_processor_time
        return TurnWatch(self._cores, knows, self._process_clock)

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
        """Kernel times of profiled sessions of each model; None where the engine has none.

        The models run in turn, and each with the session that is loaded as its `beside`, so that
        all meet the same conditions. `limits` are those of `time_within`, for the runs of all
        sessions of a model. No further session is begun when the time of the last limit is over
        and the first has its runs, but for the sessions that tell how sure the times are, as far
        as the longest time has room for them. Plans run as they are.
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
        """The times of kernels from one profiled session of each model."""
        profiled, infers = [], []
        for model in models:
            ref = ModelLocation(model["model"], model["folder"])
            session = engine.load_profiled(ref, threads, dict(options), self._folder)
            profiled.append(session)
            infers.append(self._prepared(session, model["feed"]))
        beside = [model["beside"] for model in models if model["beside"] is not None]
        infers += [self._infer[side][0] for side in beside]
        with paused_gc():
            time_within(infers, warmup, self._clock)
            runs = time_within(infers, limits, self._clock)
        self._require_processors()
        plain = dict(zip(beside, runs[len(models) :]))  # noqa: B905
        reports = []
        for model, session, times in zip(models, profiled, runs):  # noqa: B905
            report = session.report(len(times))
            session.close()
            unprofiled = plain.get(model["beside"])
            reports.append(
                {
                    **report,
                    "run_ns": times.tolist(),
                    "sessions": [len(times)],
                    "plain_ns": [] if unprofiled is None else unprofiled.tolist(),
                }
            )
        return reports

    def do_plan(
        self, model: str, folder: str | None, threads: int, options: Mapping[str, str], name: str
    ) -> dict[str, Any] | None:
        """The plan that the engine makes of a model; None where it tells none.

        It is written into a folder of this name, with the file of its weights beside it.
        """
        engine = self._require_engine()
        if not hasattr(engine, "save_plan"):
            return None
        own = os.path.join(self._folder, name)  # noqa: PTH118  # paths are texts on this side
        shutil.rmtree(own, ignore_errors=True)
        os.makedirs(own)  # noqa: PTH103
        path = engine.save_plan(ModelLocation(model, folder), threads, dict(options), own)
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
        runs_parts = not hasattr(engine, "runs_parts") or engine.runs_parts(options)
        return {"path": path, "data": data, "runs_parts": runs_parts}

    def do_weights(
        self, file: str, spans: Sequence[tuple[int, int, str]]
    ) -> list[tuple[bytes, float]]:
        """The facts that `describe_spans` has of these weights."""
        with self._heartbeat():
            return describe_spans(file, spans)

    def do_move(self, source: str, target: str, moves: Sequence[tuple[int, int, int]]) -> None:
        """See `move_spans`."""
        with self._heartbeat():
            move_spans(source, target, moves)

    def do_tensors(  # noqa: PLR0913, PLR0917  # the same
        self,
        model: str,
        threads: int,
        options: Mapping[str, str],
        feed: str,
        names: Sequence[str],
        kept: Mapping[str, Sequence[str]],
        sent: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run a plan once, and keep some of its tensors as the inputs that `kept` names.

        Returns the type and the shape of each tensor, and the stored type and the bits of those to
        be `sent`.
        """
        engine, fed = self._require_engine(), self._feeds[feed]
        arrays = dict(fed.arrays)
        arrays.update(
            engine.read_tensors(
                ModelLocation(model, None), threads, dict(options), fed.arrays, fed.dtypes, names
            )
        )
        for name in sent:
            if arrays[name].dtype.hasobject:
                raise ValueError(
                    f"the tensor {name!r} is text, which no kernel is run on by itself"
                )
        for name, wanted in kept.items():
            own = {each: align(arrays[each]) for each in wanted}
            dtypes = {each: fed.dtypes.get(each, str(a.dtype)) for each, a in own.items()}
            self._feeds[name] = FeedArrays(own, dtypes)
        found = {
            name: (fed.dtypes.get(name, str(array.dtype)), tuple(map(int, array.shape)))
            for name, array in arrays.items()
        }
        return {
            "types": found,
            "sent": {name: (arrays[name].dtype.str, arrays[name].tobytes()) for name in sent},
        }

    def do_kernels(
        self, model: str, folder: str | None, threads: int, options: Mapping[str, str], feed: str
    ) -> dict[str, Any] | None:
        """The kernels of a model, by one inference of a profiled session; None without such."""
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
        """The shapes that one run saw; None where the engine cannot tell."""
        engine = self._require_engine()
        if not hasattr(engine, "observe_shapes"):
            return None
        ref, fed = ModelLocation(model, folder), self._feeds[feed]
        return engine.observe_shapes(ref, dict(options), fed.arrays, fed.dtypes, self._folder)

    def _prepared(self, session: Session, feed: str) -> Callable[[], Any]:
        fed = self._feeds[feed]
        if fed.steps is None:
            return session.prepare(fed.arrays, fed.dtypes)
        if not hasattr(session, "prepare_steps"):
            raise RuntimeError(
                "this engine cannot hand on the state of a model: its sessions have no "
                "`prepare_steps`. Profile the model without a prompt, or on another engine"
            )
        return session.prepare_steps(fed.steps, fed.dtypes)

    def do_outputs(
        self, side: str, max_bytes: int, feed: str = "", names: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """The outputs of one inference, by name; None if the engine cannot tell.

        Each output has a type, a shape and its bits; the bits are None if they are too many to
        send. Of a generation, the inference on `feed` runs. With `names` only these are sent.
        """
        session = self._sessions[side]
        if not hasattr(session, "read_outputs"):
            return None
        fed = self._feeds[feed]
        if fed.steps is not None:
            session.prepare(fed.arrays, fed.dtypes)
        outputs: dict[str, Any] = {}
        for name, output in session.read_outputs().items():
            if names is not None and name not in names:
                continue
            fits = output.nbytes <= max_bytes and output.dtype.kind in "biufc"
            shape = tuple(map(int, output.shape))
            outputs[name] = (output.dtype.str, shape, output.tobytes() if fits else None)
            max_bytes -= output.nbytes if fits else 0
        return outputs

    def do_memory(self) -> dict[str, Any]:
        peaks = [p for s in self._sessions.values() if (p := s.peak_bytes()) is not None]
        return {
            "peak_rss_bytes": OWN_PROCESS.peak_bytes(),
            "rss_bytes": OWN_PROCESS.resident_bytes(),
            "engine_peak_bytes": max(peaks, default=None),
            "available_bytes": OWN_PROCESS.available_bytes(),
        }

    def do_end(self) -> None:
        """Close everything and remove all files; a server may start the next worker from here."""
        for side in list(self._sessions):
            self.do_close(side)
        if self._affinity is not None:
            OWN_PROCESS.use_processors(self._affinity)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- quantizing

    def do_quantizer(self, source: str, file: str) -> dict[str, Any]:
        """Load a quantizer from its source; returns what it raised, if anything."""
        try:
            self._quantize_file = take_module(QUANTIZER_MODULE, source, file).quantize_file
        except Exception as error:  # noqa: BLE001  # the other side has words of its own for it
            return {"raised": describe_error(error)}
        return {}

    def do_quantize(  # noqa: PLR0913, PLR0917  # what a quantizer is told
        self,
        source: str,
        target: str,
        form: str,
        feeds: Sequence[str],
        folder: str,
        is_large: bool,  # noqa: FBT001  # by keyword
    ) -> dict[str, Any]:
        """Have the quantizer write a model; returns its notes, or what it raised.

        Each later feed takes the inputs that it lacks from the first.
        """
        if self._quantize_file is None:
            raise RuntimeError("no quantizer was taken")
        arrays = [{**self._feeds[feeds[0]].arrays, **self._feeds[name].arrays} for name in feeds]
        try:
            with self._heartbeat():
                notes = self._quantize_file(source, target, form, arrays, folder, is_large=is_large)
        except Exception as error:  # noqa: BLE001  # the same
            return {"raised": describe_error(error)}
        return {"notes": list(notes)}

    # -- what it must have

    def _require_processors(self) -> None:
        """Raise LostProcessorsError if this process has fewer processors than it was pinned to."""
        if not self._cores:
            return
        left = len(processors_left(self._other_threads))
        if left < self._cores:
            verb = "is" if left == 1 else "are"
            raise LostProcessorsError(f"{left} of {self._cores} {verb} left")

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("no engine was chosen")
        return self._engine


def _turns(taken: Taken) -> dict[str, bytes]:
    return {name: numbers.tobytes() for name, numbers in vars(taken).items()}


# -- errors


def describe_error(error: BaseException) -> dict[str, Any]:
    """The facts of an error that the other side needs to describe it."""
    return {
        "kind": error_kind(error),
        "type": type(error).__name__,
        "message": _utf8(str(error)),
        "name": getattr(error, "name", None),
        "trace": _utf8(_trace_of(error)),
    }


def _utf8(text: str) -> str:
    """The text as it can be sent: half of a character, as in the name of a file, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace_of(error: BaseException) -> str:
    """The traceback of an error and of its causes, without our frames."""
    told = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES)
    each: traceback.TracebackException | None = told
    while each is not None:
        frames = [frame for frame in each.stack if not _is_own_frame(frame.filename)]
        each.stack[:] = frames
        each = each.__cause__ or each.__context__
    return "".join(told.format()) if told.stack else ""


def _is_own_frame(file: str) -> bool:
    return file.startswith(_OWN_FILES) or _OWN_FOLDER in file


_KINDS = {
    LostProcessorsError: "processors",
    ClocksError: "clocks",
}


def error_kind(error: BaseException) -> str:
    # Libraries raise it with a message of their own, and then it has no name.
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
    # ONNX Runtime does not tell the reason of the system.
    if is_full or "failed to write external initializers" in text:
        return "disk"
    return "failed"


def serve(channel: Any) -> None:  # noqa: ANN401  # execnet's channel
    """Answer the requests of the channel until it is closed.

    While an answer takes long, None is sent regularly as long as Python code runs.
    """
    agent = Agent(heartbeat=partial(heartbeat, partial(channel.send, None)))
    try:
        for request in channel:
            _answer(channel, agent.handle(request))
            if request["command"] == "end":
                return
    finally:
        # The other side may have gone without a word.
        agent.do_end()


def _answer(channel: Any, answer: Mapping[str, Any]) -> None:  # noqa: ANN401  # execnet's channel
    """Send an answer; an engine may have put values into it that have to be made plain first."""
    try:
        channel.send(answer)
    except Exception as error:
        if type(error).__name__ != "DumpError":
            raise
        try:
            plain = plain_value(answer)
        except TypeError as error:
            plain = {"error": describe_error(error)}
        channel.send(plain)


def plain_value(value: Any) -> Any:  # noqa: ANN401  # whatever an engine returns
    """The value with the types of Python itself in place of subclasses, such as of `str`.

    TypeError for an object that is no such value.
    """
    if isinstance(value, Mapping):
        return {plain_value(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    # By its own methods, a member of an enum would be its name.
    copies: Mapping[type, Callable[[Any], Any]] = {
        str: str.__str__,
        int: int.__int__,
        float: float.__float__,
        bytes: bytes,
    }
    for kind, copy in copies.items():
        if isinstance(value, kind):
            return copy(value)
    found = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"the engine returned {value!r}, which is a {found} and no plain value")


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The report of a session with the runs of another one, which has its kernels in any order.

    An engine that makes another plan of the same model has other kernels: then the first counts.
    """
    own, others = (sorted(r["kernels"], key=lambda k: str(k["name"])) for r in (one, other))
    pairs = list(zip(own, others))  # noqa: B905
    if len(own) != len(others) or any(not _is_same_kernel(a, b) for a, b in pairs):
        return one
    more = {id(a): b["self_ns"] for a, b in pairs}
    peaks = [r["peak_bytes"] for r in (one, other) if r["peak_bytes"] is not None]
    return {
        **one,
        "kernels": [{**k, "self_ns": [*k["self_ns"], *more[id(k)]]} for k in one["kernels"]],
        "peak_bytes": max(peaks) if peaks else None,
        **{name: [*one[name], *other[name]] for name in ("run_ns", "sessions", "plain_ns")},
    }


def _is_same_kernel(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[key] == other[key] for key in ("name", "op_type", "provider", "precision"))
