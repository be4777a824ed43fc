"""What runs inside a worker: it loads models, times inferences, and answers one request at a time.

Its source is sent through the gateway, and the engine's after it, so it needs the standard
library, numpy and the engine, but not this package. It decides nothing: how often to run and when
to stop is told by the other side, over a channel that carries plain values.
"""

from __future__ import annotations

import array
import contextlib
import errno
import faulthandler
import gc
import io
import itertools
import linecache
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine, Session


Clock = Callable[[], int]

ENGINE_MODULE = "modelperf_engine"
# Inferences of both sides of a profiled run before any is kept.
_PROFILE_WARMUP = 3
# prctl(PR_SET_PDEATHSIG): see prctl(2).
_PR_SET_PDEATHSIG = 1
_KIB = 1024
_NS_PER_S = 1_000_000_000


class ModelRef:
    """Where the model is: a file, and the folder of its external data if that is another."""

    def __init__(self, path: Any, folder: str | None) -> None:  # noqa: ANN401  # or a function
        self.path = path
        self.folder = folder


class Feed:
    """The inputs of a model by name, and their types, which numpy may not have."""

    def __init__(self, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> None:
        self.arrays = arrays
        self.dtypes = dtypes


class LostProcessorsError(RuntimeError):
    """Somebody took processors away from this process: what it timed is of fewer cores."""


class Agent:
    """The models that are loaded, and what can be asked about them."""

    def __init__(self, clock: Clock = time.perf_counter_ns, meter: Meter | None = None) -> None:
        self._clock = clock
        self._cores = 0
        # Those that were there before this process was pinned.
        self._other_threads: frozenset[str] = frozenset()
        self._engine: Engine | None = None
        self._sessions: dict[str, Session] = {}
        # One function for each request that runs at once.
        self._infer: dict[str, list[Callable[[], Any]]] = {}
        self._feeds: dict[str, Feed] = {}
        self._meter = meter or Meter((), None)
        self._folder = ""
        self._is_child = False
        self._affinity: frozenset[int] | None = None

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
        memory_limit: int | None = None,
    ) -> dict[str, Any]:
        """Make this process ready: its own group, its log, its processors."""
        self._is_child = is_child
        if is_child:
            become_group_leader()
            # What is measured is not traced beside.
            os.environ.pop("MODELPERF_TRACE", None)
            if folder is not None:
                # What an engine leaves in the folder of temporary files goes with the worker.
                os.environ["TMPDIR"] = folder
        if log is not None:
            redirect_output(log)
        if is_child:
            # A file beside the model may have the name of a module that is imported from here on.
            sys.path[:] = filter(None, sys.path)
        sys.path.extend(path for path in paths if path not in sys.path)
        if memory_limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
        self._folder = folder or tempfile.mkdtemp(prefix="modelperf-")
        if hasattr(os, "sched_getaffinity"):
            self._affinity = frozenset(os.sched_getaffinity(0))
        told = describe_platform()
        pinned, why = pin(cores)
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

    def do_engine(self, source: str, file: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Take the engine from its source, and let it say what it is."""
        module = types.ModuleType(ENGINE_MODULE)
        module.__file__ = file
        # So that a traceback shows lines of a file that may not be on this machine.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        sys.modules[ENGINE_MODULE] = module
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102  # our own, or a plugin's
        self.use_engine(cast("Engine", module))
        described = dict(module.describe(dict(options)))
        if self._is_child:
            # What was imported stays: going through it before each block takes longer than most
            # blocks do.
            gc.collect()
            gc.freeze()
        return described

    def use_engine(self, engine: Engine) -> None:
        self._engine = engine

    def do_variant_options(
        self,
        kind: str,
        value: Any,  # noqa: ANN401  # a precision, or a share
        options: Mapping[str, str],
    ) -> dict[str, str] | None:
        """What `precision_options` and its like of the engine say; None where it has them not."""
        engine = self._require_engine()
        if not hasattr(engine, f"{kind}_options"):
            return None
        return dict(getattr(engine, f"{kind}_options")(value, dict(options)))

    # -- models

    def do_inputs(self, inputs: Mapping[str, Any], feed: str = "") -> None:
        """Keep the inputs of all inferences to come that ask for this feed.

        Each is a type, the type that it is stored as, its shape, and its bits or texts.
        """
        import numpy as np

        arrays: dict[str, Any] = {}
        dtypes: dict[str, str] = {}
        for name, (dtype, stored, shape, data) in inputs.items():
            values = (
                np.array(data, dtype=object)
                if dtype == "string"
                else np.frombuffer(bytearray(data), dtype=stored)
            )
            arrays[name] = values.reshape(shape)
            dtypes[name] = dtype
        self._feeds[feed] = Feed(arrays, dtypes)

    def do_open(  # noqa: PLR0913, PLR0917  # the same
        self,
        side: str,
        model: Any,  # noqa: ANN401  # a path, or a function where no process lies between
        folder: str | None,
        threads: int,
        options: Mapping[str, str],
        feed: str = "",
        streams: int = 1,
    ) -> dict[str, Any]:
        """Load a model as `side`, for so many requests at once; when, and how long that took."""
        engine = self._require_engine()
        chosen = dict(options)
        if streams > 1 and hasattr(engine, "stream_options"):
            chosen = {**engine.stream_options(streams, chosen), **chosen}
        gc.collect()
        start = self._clock()
        session = engine.load(ModelRef(model, folder), threads, chosen)
        load_ns = self._clock() - start
        self._sessions[side] = session
        if streams > 1 and not hasattr(session, "prepare_another"):
            raise RuntimeError("this engine runs one request at a time on a session: one stream")
        fed = self._feeds[feed]
        self._infer[side] = [
            self._prepared(session, feed),
            *(session.prepare_another(fed.arrays, fed.dtypes) for _ in range(streams - 1)),
        ]
        return {"begun_ns": start, "load_ns": load_ns}

    def do_close(self, side: str) -> None:
        self._infer.pop(side, None)
        session = self._sessions.pop(side, None)
        if session is not None:
            session.close()

    def do_block(
        self, sides: Sequence[str], count: int, max_ns: int, seed: int = 0
    ) -> dict[str, Any]:
        """Times of up to `count` inferences a side, in random order within each turn.

        Of sides that take turns also when each inference began; of one side, when the first did.
        Of one side whose requests run at once, also how many there were a second.
        """
        infers = [self._infer[side] for side in sides]
        starts = [array.array("q") for _ in infers] if len(infers) > 1 else []
        per_second = None
        before = self._meter.read()
        with paused_gc():
            begun = self._clock()
            if len(infers) > 1:
                firsts = [streams[0] for streams in infers]
                order = random.Random(seed)  # noqa: S311  # an order, no secret
                times = time_in_turn(firsts, count, max_ns, self._clock, order, starts)
            elif len(infers[0]) > 1:
                taken, per_second = time_at_once(infers[0], count, max_ns, self._clock)
                times = [taken]
            else:
                times = [time_one(infers[0][0], count, max_ns, self._clock)]
        noise = self._meter.since(before)
        self._require_processors()
        return {
            "times": {side: t.tobytes() for side, t in zip(sides, times)},  # noqa: B905  # equal by construction, and 3.9 has no strict
            "begun_ns": begun,
            "starts": {side: s.tobytes() for side, s in zip(sides, starts)} or None,  # noqa: B905
            "per_second": per_second,
            "noise": noise,
        }

    def do_layers(  # noqa: PLR0913, PLR0917  # one for each thing that the other side may say
        self,
        models: Sequence[Mapping[str, Any]],
        threads: int,
        options: Mapping[str, str],
        min_runs: int,
        max_runs: int,
        max_ns: int,
    ) -> list[dict[str, Any]] | None:
        """Kernel times of profiled sessions, one for each model; None where the engine has none.

        They run in turn with one another, and each with the session that is loaded as its
        `beside`, so that all see the same machine.
        """
        engine = self._require_engine()
        if not hasattr(engine, "load_profiled"):
            return None
        profiled, infers = [], []
        for model in models:
            ref = ModelRef(model["model"], model["folder"])
            session = engine.load_profiled(ref, threads, dict(options), self._folder)
            profiled.append(session)
            infers.append(self._prepared(session, model["feed"]))
        beside = [model["beside"] for model in models if model["beside"] is not None]
        infers += [self._infer[side][0] for side in beside]
        with paused_gc():
            time_in_turn(infers, _PROFILE_WARMUP, max_ns, self._clock, random.Random(0))  # noqa: S311
            first = time_in_turn(infers, min_runs, sys.maxsize, self._clock, random.Random(1))  # noqa: S311
            left = max_ns - sum(map(sum, first))
            count = max_runs - min_runs if left > 0 else 0
            more = time_in_turn(infers, count, left, self._clock, random.Random(2))  # noqa: S311
        self._require_processors()
        runs = [a + b for a, b in zip(first, more)]  # noqa: B905  # 3.9 has no strict
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
                    "plain_ns": [] if unprofiled is None else unprofiled.tolist(),
                }
            )
        return reports

    def do_shapes(
        self, model: str, folder: str | None, options: Mapping[str, str], feed: str = ""
    ) -> list[dict[str, Any]] | None:
        """The shapes that one run saw; None where the engine cannot tell."""
        engine = self._require_engine()
        if not hasattr(engine, "observe_shapes"):
            return None
        ref, fed = ModelRef(model, folder), self._feeds[feed]
        return engine.observe_shapes(ref, dict(options), fed.arrays, fed.dtypes, self._folder)

    def _prepared(self, session: Session, feed: str) -> Callable[[], Any]:
        fed = self._feeds[feed]
        return session.prepare(fed.arrays, fed.dtypes)

    def do_outputs(self, side: str, max_bytes: int) -> dict[str, Any] | None:
        """What one inference gives out, by name; None where the engine cannot tell.

        Each is a type, a shape and its bits, which are None for what is too large to be sent.
        """
        session = self._sessions[side]
        if not hasattr(session, "read_outputs"):
            return None
        outputs: dict[str, Any] = {}
        for name, output in session.read_outputs().items():
            fits = output.nbytes <= max_bytes and output.dtype.kind in "biufc"
            shape = tuple(map(int, output.shape))
            outputs[name] = (output.dtype.str, shape, output.tobytes() if fits else None)
            max_bytes -= output.nbytes if fits else 0
        return outputs

    def do_memory(self) -> dict[str, Any]:
        peaks = [p for s in self._sessions.values() if (p := s.peak_bytes()) is not None]
        return {
            "peak_rss_bytes": peak_rss_bytes(),
            "engine_peak_bytes": max(peaks, default=None),
            "available_bytes": available_bytes(),
        }

    def do_end(self) -> None:
        """Close everything and leave no file behind; a server takes the next from here."""
        for side in list(self._sessions):
            self.do_close(side)
        if self._affinity is not None:
            os.sched_setaffinity(0, self._affinity)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _require_processors(self) -> None:
        """Raise where less than this process was pinned to is left of it."""
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


# -- timing


def time_one(infer: Callable[[], Any], count: int, max_ns: int, clock: Clock) -> array.array[int]:
    """The times of up to `count` inferences, at least one; it stops when `max_ns` are over."""
    times = array.array("q", bytes(8 * count))
    done = 0
    end = clock() + max_ns
    while done < count:
        start = clock()
        infer()
        stop = clock()
        times[done] = stop - start
        done += 1
        if stop > end:
            break
    return times[:done]


def time_in_turn(  # noqa: PLR0913, PLR0917  # one for each thing that the other side may say
    infers: Sequence[Callable[[], Any]],
    count: int,
    max_ns: int,
    clock: Clock,
    choose: random.Random,
    starts: Sequence[array.array[int]] = (),
) -> list[array.array[int]]:
    """The times of up to `count` turns in which each of `infers` runs once, in random order.

    At least one turn, unless `count` is 0; none is begun after `max_ns`. When each began is added
    to `starts`, where it is wanted.
    """
    times = [array.array("q") for _ in infers]
    order = list(range(len(infers)))
    end = clock() + max_ns
    for _ in range(count):
        choose.shuffle(order)
        for index in order:
            infer = infers[index]
            start = clock()
            infer()
            stop = clock()
            times[index].append(stop - start)
            if starts:
                starts[index].append(start)
        if clock() > end:
            break
    return times


def time_at_once(
    infers: Sequence[Callable[[], Any]], count: int, max_ns: int, clock: Clock
) -> tuple[array.array[int], float]:
    """The times of up to `count` inferences that run at once, and how many there were a second.

    Each of `infers` has a thread of its own, and takes the next inference as soon as its last is
    over; at least one runs, and none is begun after `max_ns`. A stream that has nothing left to do
    leaves the others alone, so the rate is the sum of those that each had while it ran.
    """
    running = infers[:count]
    tickets = itertools.count()
    times = [array.array("q") for _ in running]
    spent_ns = [0] * len(running)
    errors: list[BaseException] = []
    ready = threading.Barrier(len(running))

    def run(index: int) -> None:
        infer, own = running[index], times[index]
        try:
            ready.wait()
            begun = start = clock()
            # CPython's count hands out each number once, whatever thread asks.
            while not own or (next(tickets) < count - len(running) and start - begun < max_ns):
                start = clock()
                infer()
                stop = clock()
                own.append(stop - start)
                start = stop
            spent_ns[index] = start - begun
        except BaseException as error:  # noqa: BLE001  # raised where all have ended
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(1, len(running))]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    taken = array.array("q")
    for own in times:
        taken.extend(own)
    rates = [len(own) / max(ns, 1) for own, ns in zip(times, spent_ns)]  # noqa: B905  # 3.9 has no strict
    return taken, sum(rates) * _NS_PER_S


@contextlib.contextmanager
def paused_gc() -> Any:  # noqa: ANN401  # a generator, as contextlib wants it
    """The garbage collector switched off for as long as something is timed."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# -- noise


class Meter:
    """Counters of the system around a block; what a platform does not have is None."""

    def __init__(self, cgroup_files: tuple[str, ...], processors: Sequence[int] | None) -> None:
        self._cgroup_files = cgroup_files
        self._processors = None if processors is None else frozenset(processors)
        self._tick_ns = _NS_PER_S // os.sysconf("SC_CLK_TCK")

    def read(self) -> dict[str, int | None]:
        busy, stolen = self._processor_times()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "wall_ns": time.perf_counter_ns(),
            "cpu_ns": int((usage.ru_utime + usage.ru_stime) * _NS_PER_S),
            "involuntary_switches": usage.ru_nivcsw,
            "busy_ns": busy,
            "stolen_ns": stolen,
            "throttled_ns": self._throttled(),
        }

    def since(self, before: Mapping[str, int | None]) -> dict[str, int | None]:
        """What has passed; `others_ns` is what the processors did beside this process.

        That can be a little below 0: processors are counted in ticks of 10 ms.
        """
        now = self.read()
        spent: dict[str, int | None] = {}
        for name, value in now.items():
            past = before[name]
            spent[name] = None if value is None or past is None else value - past
        busy, own = spent.pop("busy_ns"), spent["cpu_ns"]
        spent["others_ns"] = None if busy is None or own is None else busy - own
        return spent

    def _processor_times(self) -> tuple[int | None, int | None]:
        """Busy and stolen time of the pinned processors (proc_stat(5))."""
        if self._processors is None:
            return None, None
        busy = stolen = 0
        try:
            with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
                for line in file:
                    name, _, rest = line.partition(" ")
                    if not name.startswith("cpu"):
                        break
                    if name[3:].isdigit() and int(name[3:]) in self._processors:
                        user, nice, system, _, _, irq, softirq, steal = map(int, rest.split()[:8])
                        busy += user + nice + system + irq + softirq
                        stolen += steal
        except (OSError, ValueError):
            return None, None
        return busy * self._tick_ns, stolen * self._tick_ns

    def _throttled(self) -> int | None:
        """How long the cgroups halted their processes, the longest of those that hold this one."""
        times = [t for path in self._cgroup_files if (t := throttled_ns(path)) is not None]
        return max(times, default=None)


def throttled_ns(path: str) -> int | None:
    """What a `cpu.stat` says: microseconds in version 2, nanoseconds in version 1."""
    factors = {"throttled_usec": 1000, "throttled_time": 1}
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                name, _, value = line.partition(" ")
                if name in factors:
                    return int(value) * factors[name]
    except (OSError, ValueError):
        pass
    return None


def peak_rss_bytes() -> int:
    """The most memory that this process ever had.

    Linux hands the peak in `ru_maxrss` from a process on to those that it starts, so there it is
    read where it begins anew (proc_pid_status(5)). On macOS it is in bytes.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * _KIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * _KIB


def available_bytes() -> int | None:
    """The memory that a process can still get without others being moved out (proc_meminfo(5))."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * _KIB
    return None


# -- the process


def become_group_leader() -> None:
    """A group of its own, so that all of it can be ended; and an end when the starter ends."""
    with contextlib.suppress(OSError):
        os.setsid()
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def redirect_output(path: str) -> None:
    """All output, that of native code too, goes into a file; a crash leaves its stack there."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), line_buffering=True)
    # One thread: to walk the others, which still run, may crash once more.
    faulthandler.enable(file=2, all_threads=False)


def pin(cores: int) -> tuple[list[int] | None, str | None]:
    """Bind this process to so many processors: which, or why not."""
    if not hasattr(os, "sched_setaffinity"):
        return None, f"{sys.platform} has no way to pin a process"
    wanted = choose_processors(cores, sorted(os.sched_getaffinity(0)), siblings)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        return None, f"pinning failed: {error.strerror}"
    if sorted(os.sched_getaffinity(0)) != wanted:
        return None, "the system did not keep the process where it was pinned"
    return wanted, None


def processors_left(besides: frozenset[str]) -> set[int]:
    """Those that this thread and all but some others of this process may run on.

    Not of this thread alone: some runtimes bind each of their threads, this one among them.
    """
    allowed: set[int] = set(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        for thread in set(os.listdir("/proc/self/task")) - besides:  # noqa: PTH208  # paths are texts on this side
            # It may have ended since.
            with contextlib.suppress(OSError):
                allowed |= os.sched_getaffinity(int(thread))
    return allowed


def other_threads() -> frozenset[str]:
    """All of this process but the one that asks; none where the platform does not tell."""
    with contextlib.suppress(OSError):
        threads = os.listdir("/proc/self/task")  # noqa: PTH208  # paths are texts on this side
        return frozenset(threads) - {str(threading.get_native_id())}
    return frozenset()


def choose_processors(
    cores: int, allowed: Sequence[int], siblings_of: Callable[[int], frozenset[int]]
) -> list[int]:
    """The last of the allowed ones, one of each physical core before a second of any.

    The last, because systems tend to run their own business on the first.
    """
    first: list[int] = []
    second: list[int] = []
    taken: set[int] = set()
    for processor in reversed(allowed):
        if taken & siblings_of(processor):
            second.append(processor)
        else:
            first.append(processor)
            taken.add(processor)
    return sorted((first + second)[:cores])


def siblings(processor: int) -> frozenset[int]:
    """The processors that share a physical core with this one, itself included."""
    path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    found = {processor}
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123
        for part in file.read().strip().split(","):
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def describe_platform() -> dict[str, str | int | None]:
    """What can be told of this machine without this package."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpu = platform.processor() or None
    lines: list[str] = []
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            cpu = value.strip()
            break
    return {
        "system": platform.system() or None,
        "kernel": platform.release() or None,
        "architecture": platform.machine() or None,
        "cpu": cpu,
        "logical_cores": os.cpu_count(),
        "usable_cores": usable,
        "python": platform.python_version(),
    }


# -- errors


def describe_error(error: BaseException) -> dict[str, Any]:
    """What the other side needs to say what happened."""
    return {
        "kind": error_kind(error),
        "type": type(error).__name__,
        "message": str(error),
        "name": getattr(error, "name", None),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def error_kind(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "missing"
    if type(error).__name__ == "OptionError":
        return "option"
    if isinstance(error, LostProcessorsError):
        return "processors"
    text = str(error).lower()
    if isinstance(error, MemoryError) or "bad_alloc" in text or "failed to allocate" in text:
        return "memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk"
    return "failed"


def serve(channel: Any) -> None:  # noqa: ANN401  # execnet's channel
    """Answer what comes through the channel, until it ends."""
    agent = Agent()
    for request in channel:
        channel.send(agent.handle(request))
        if request["command"] == "end":
            return


if __name__ == "__channelexec__":
    serve(channel)  # type: ignore[name-defined]  # noqa: F821  # execnet puts it there
