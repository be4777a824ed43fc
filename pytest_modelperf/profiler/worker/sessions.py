"""The loaded models of a worker: sessions, inputs, stored weights, and the blocks that time them.

The facts of a weight are a digest of the data and its share of subnormal numbers.

A large weight is read in part: some pieces at equal distances, always including both ends. Two
weights that are equal in all of these pieces count as equal.

Its source is sent to a worker with the agent's, so it needs only the standard library and numpy.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pytest_modelperf.profiler.worker.process import Meter, processors_left
from pytest_modelperf.profiler.worker.timing import (
    Clock,
    Clocks,
    Taken,
    TurnWatch,
    measure_clocks,
    paused_gc,
    time_arrivals,
    time_at_once,
    time_chains,
    time_one,
    wait_until,
)

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine, Session, Steps


# The width of the widest vector registers, and the alignment of the memory of ONNX Runtime.
_ALIGNMENT = 64


class FeedArrays(NamedTuple):
    """The inputs of a model by name, their types, which numpy may lack, and steps, if any."""

    arrays: Mapping[str, Any]
    dtypes: Mapping[str, str]
    steps: StepArrays | None = None


class StepArrays:
    """The steps of a generation. See `StepPlan` of the engines.

    `changing` has, for each input that changes with the steps, one entry per step: the start of its
    values in a flat array, and its shape. `state` has inputs, the outputs that they take over, the
    axis along which they grow, and the number of entries they grow by at each step. They do not
    grow if the axis is None.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        count: int,
        state: Sequence[tuple[str, str, int | None, int]],
        changing: Mapping[str, Sequence[tuple[int, Sequence[int]]]],
    ) -> None:
        self.count = count
        self.state = [(past, present) for past, present, _, _ in state]
        self._state = state
        self._changing = changing
        self._arrays = arrays
        handed_on = {past for past, _ in self.state}
        self.fixed = {n: a for n, a in arrays.items() if n not in changing and n not in handed_on}
        self._own = [name for name in changing if name not in handed_on]

    def inputs_at(self, step: int) -> dict[str, Any]:
        return {name: self._view(name, step) for name in self._own}

    def _view(self, name: str, step: int) -> Any:  # noqa: ANN401  # an array
        start, shape = self._changing[name][step]
        size = math.prod(shape)
        return self._arrays[name][start : start + size].reshape(shape)

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the state before a step: the first one, repeated up to its length at that step."""
        import numpy as np

        found = {}
        for past, _, axis, growth in self._state:
            if past in self._changing:
                found[past] = self._view(past, step)
                continue
            array = self._arrays[past]
            if axis is not None and step:
                length = array.shape[axis] + step * growth
                shape = list(array.shape)
                shape[axis] = length
                array = align(
                    np.take(array, np.arange(length) % array.shape[axis], axis)
                    if array.size
                    else np.zeros(shape, array.dtype)
                )
            found[past] = array
        return found


def align(array: Any) -> Any:  # noqa: ANN401  # an array, as everywhere here
    """Return a copy that is aligned as an engine aligns its own tensors. Texts are not copied.

    Vector instructions are slower on memory with another alignment. Where numpy places an array
    depends on what was freed before, so it would differ between processes.
    """
    import numpy as np

    if array.dtype.hasobject:
        return array
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_feed(inputs: Mapping[str, Any], steps: Mapping[str, Any] | None) -> FeedArrays:
    """Return the inputs that the other side sent.

    Each has a type, the type that it is stored as, a shape, and its bits or texts. `steps` are the
    arguments of `StepArrays`, for a generation.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for name, (dtype, stored, shape, data) in inputs.items():
        values = (
            np.array(data, dtype=object) if dtype == "string" else np.frombuffer(data, dtype=stored)
        )
        arrays[name] = align(values.reshape(shape))
        dtypes[name] = dtype
    made = None if steps is None else StepArrays(arrays, **steps)
    return FeedArrays(arrays, dtypes, made)


# A multiple of every element size, and small enough to stay in the cache of a core.
_PIECE_BYTES = 1 << 15
_DIGEST_BYTES = 16
_TOO_SHORT = "the weights of the plan end too soon"
# The most pieces of one weight that are read.
_MOST_PIECES = 32
# The type that holds the bits of a number, the bits without the sign, and the smallest normal ones.
_LAYOUTS: Mapping[str, tuple[str, int, int]] = {
    "float64": ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x0010_0000_0000_0000),
    "float32": ("<u4", 0x7FFF_FFFF, 0x0080_0000),
    "float16": ("<u2", 0x7FFF, 0x0400),
    "bfloat16": ("<u2", 0x7FFF, 0x0080),
}


def describe_spans(path: str, spans: Sequence[tuple[int, int, str]]) -> list[tuple[bytes, float]]:
    """Return the digest and the share of subnormal numbers of each span: offset, bytes, type."""
    with open(path, "rb") as file:  # noqa: PTH123  # a path is a string on this side
        return [_describe(file, *span) for span in spans]


def read_spans(path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the data of each span: offset, bytes."""
    found = []
    with open(path, "rb") as file:  # noqa: PTH123  # likewise
        for offset, nbytes in spans:
            file.seek(offset)
            found.append(file.read(nbytes))
            if len(found[-1]) < nbytes:
                raise ValueError(_TOO_SHORT)
    return found


def move_spans(source: str, target: str, moves: Sequence[tuple[int, int, int]]) -> None:
    """Write spans of a file into another: the offset and the bytes of each, and its new offset."""
    with open(source, "rb") as old, open(target, "wb") as new:  # noqa: PTH123  # likewise
        for offset, nbytes, place in moves:
            old.seek(offset)
            new.seek(place)
            left = nbytes
            while left:
                piece = old.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise ValueError(_TOO_SHORT)
                new.write(piece)
                left -= len(piece)


def _pieces(nbytes: int) -> list[tuple[int, int]]:
    """Return the start and the length of each piece, always including both ends of the weight."""
    count = -(-nbytes // _PIECE_BYTES)
    steps = range(count)
    if count > _MOST_PIECES:
        steps = [k * (count - 1) // (_MOST_PIECES - 1) for k in range(_MOST_PIECES)]  # type: ignore[assignment]  # numbers either way
    return [(k * _PIECE_BYTES, min(_PIECE_BYTES, nbytes - k * _PIECE_BYTES)) for k in steps]


def _describe(file: Any, offset: int, nbytes: int, dtype: str) -> tuple[bytes, float]:  # noqa: ANN401  # an open file
    import numpy as np

    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    layout = _LAYOUTS.get(dtype)
    subnormals = numbers = 0
    for start, length in _pieces(nbytes):
        file.seek(offset + start)
        piece = file.read(length)
        if len(piece) < length:
            raise ValueError(_TOO_SHORT)
        digest.update(piece)
        if layout is not None:
            kind, mask, normal = layout
            magnitudes = np.frombuffer(piece, kind) & mask
            numbers += magnitudes.size
            # Subtracting 1 turns zeros into the largest number, so they do not count.
            subnormals += int(np.count_nonzero(magnitudes - magnitudes.dtype.type(1) < normal - 1))
    return digest.digest(), subnormals / numbers if numbers else 0.0


class ModelLocation(NamedTuple):
    """A file or a function, and the folder of the file's external data if that is elsewhere."""

    path: Any
    folder: str | None


class LostProcessorsError(RuntimeError):
    """The process has lost processors, so its times are for fewer cores."""


class ModelSessions:
    """The engine and its sessions. Each `do_` method answers a request about them."""

    def __init__(
        self,
        clock: Clock,
        meter: Meter | None,
        process_clock: Clock,
        run: Callable[[Callable[[], Any]], Any] | None,
    ) -> None:
        # Runs a block of inferences in the thread that they belong to; None means this thread.
        self._run = run
        self._machine_clock = clock
        self._clock = clock
        self._process_clock = process_clock
        self._clocks: Clocks | None = None
        self._cores = 0
        # The threads that existed before this process was pinned.
        self._other_threads: frozenset[str] = frozenset()
        self._engine: Engine | None = None
        self._sessions: dict[str, Session] = {}
        # When each of these began to load, how long that took, and the session.
        self._loaded: dict[str, tuple[int, int, Session]] = {}
        # One function for each request that runs at the same time.
        self._infer: dict[str, list[Callable[[], Any]]] = {}
        self._feeds: dict[str, FeedArrays] = {}
        self._meter = meter or Meter((), None)

    def use_engine(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = getattr(engine, "clock_ns", self._machine_clock)

    def do_clocks(self) -> dict[str, Any] | None:
        """Return the ticks of the clocks here, or None for an engine with a clock of its own."""
        if self._clock is not self._machine_clock:
            return None
        if self._clocks is None:
            self._clocks = measure_clocks(self._machine_clock, self._process_clock)
        return dict(vars(self._clocks))

    def do_inputs(
        self, inputs: Mapping[str, Any], feed: str = "", steps: Mapping[str, Any] | None = None
    ) -> None:
        """Keep inputs for the inferences that name this feed. See `read_feed` for their form."""
        self._feeds[feed] = read_feed(inputs, steps)

    def do_open(  # noqa: PLR0913, PLR0917  # the same
        self,
        side: str,
        model: Any,  # noqa: ANN401  # a path, or a function if the worker is this process
        folder: str | None,
        threads: int,
        options: Mapping[str, str],
        feed: str = "",
        streams: int = 1,
        is_part: bool = False,  # noqa: FBT001, FBT002  # by keyword
    ) -> dict[str, Any]:
        """Load a model as `side`, for that many requests at once. Return when and how long.

        For a Python function, also return its file. A part of a plan is loaded as it is, without
        optimizations.
        """
        engine = self._require_engine()
        chosen = dict(options)
        if streams > 1 and hasattr(engine, "stream_options"):
            chosen = {**engine.stream_options(streams, chosen), **chosen}
        load = engine.load_part if is_part else engine.load
        ref = ModelLocation(model, folder)
        if side not in self._loaded:
            self._load(side, lambda: (load(ref, threads, chosen), None))
        start, load_ns, session = self._loaded.pop(side)
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

    def _load(self, side: str, load: Callable[[], tuple[Session, str | None]]) -> str | None:
        """Load a session for the next `open` of a side. Return the path that came with it."""
        gc.collect()
        start = self._clock()
        session, path = load()
        self._loaded[side] = (start, self._clock() - start, session)
        return path

    def do_close(self, side: str) -> None:
        self._infer.pop(side, None)
        session = self._sessions.pop(side, None)
        if session is not None:
            session.close()
        if side in self._loaded:
            self._loaded.pop(side)[-1].close()

    def do_block(  # noqa: PLR0913, PLR0917  # one for each setting of the other side
        self,
        sides: Sequence[str],
        count: int,
        max_ns: int,
        seed: int = 0,
        first_step: int | None = None,
        parts: Mapping[str, Sequence[str]] | None = None,
        watches: bool = False,  # noqa: FBT001, FBT002  # by keyword
        every_ns: int | None = None,
    ) -> dict[str, Any]:
        """Return the times of up to `count` inferences per side, in random order within each turn.

        For sides that take turns, and for one that it `watches`, also return when each inference
        began and what disturbed it. For one side with several requests at once, also return the
        inferences per second. For one side an inference may arrive every `every_ns`; its times then
        count from its arrival. A generation goes on from `first_step`. The `parts` of a side run
        right after it in each turn, and once more without it when all turns are over.
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
            if every_ns is not None:
                wait = self._waiting()
                arriving = time_arrivals(infers[0], count, max_ns, every_ns, self._clock, wait)
                taken, times = [], [arriving]
            elif len(infers) > 1 or watches:
                order = random.Random(seed)  # noqa: S311  # an order, not a secret
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

    def _waiting(self) -> Callable[[int], None]:
        if self._clock is self._machine_clock:
            return partial(wait_until, clock=self._clock)
        if not hasattr(self._engine, "wait_until"):
            raise RuntimeError(
                "this engine has a clock of its own and no `wait_until`: its inferences cannot "
                "arrive at a pace"
            )
        return self._require_engine().wait_until

    def _turn_watch(self) -> TurnWatch | None:
        """Return None for an engine with a clock of its own: it simulates its hardware."""
        if self._clock is not self._machine_clock:
            return None
        knows = self._clocks is None or self._clocks.knows_processor_time
        return TurnWatch(self._cores, knows, self._process_clock)

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

        Return the type and the shape of each tensor, and the stored type and the bits of those to
        be `sent`.
        """
        engine, fed = self._require_engine(), self._feeds[feed]
        ref = ModelLocation(model, None)
        read = engine.read_tensors(ref, threads, dict(options), fed.arrays, fed.dtypes, names)
        arrays = {**fed.arrays, **read}
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
        bits = {name: (arrays[name].dtype.str, arrays[name].tobytes()) for name in sent}
        return {"types": found, "sent": bits}

    def do_outputs(
        self, side: str, max_bytes: int, feed: str = "", names: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """Return the outputs of one inference, by name, or None if the engine cannot read them.

        Each output has a type, a shape and its bits; the bits are None if they are too large to
        send. For a generation, the inference on `feed` runs. With `names`, only these outputs are
        sent.
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

    def _prepared(self, session: Session, feed: str) -> Callable[[], Any]:
        fed = self._feeds[feed]
        if fed.steps is None:
            return session.prepare(fed.arrays, fed.dtypes)
        if not hasattr(session, "prepare_steps"):
            raise RuntimeError(
                "this engine cannot change its inputs from one inference to the next: its sessions "
                "have no `prepare_steps`. Profile the model without a prompt and without a "
                "workload, or on another engine"
            )
        return session.prepare_steps(fed.steps, fed.dtypes)

    def _require_processors(self) -> None:
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
