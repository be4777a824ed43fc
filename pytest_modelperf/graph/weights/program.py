"""Draw the weights that were left out of the models in this folder, and time the models in turn.

This program needs only numpy and onnxruntime. Start it with `python run.py`, or with
`python run.py 60` to run for a minute. The first run draws the weights from the notes in run.json.
They are the same on every machine.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

PIECE = 1 << 18  # How many numbers are drawn at once, which is an even number.
POOL = 1_048_573  # A prime, so that all rows of a matrix begin at different places of a pool.


# Drawing each number of a large model would take longer than measuring it.
@lru_cache(maxsize=2)
def pool(seed: int, is_even: bool) -> Any:  # noqa: FBT001  # selects a distribution
    """Draw numbers with a mean of 0: uniform from -1 to 1, or normal with a deviation of 1."""
    name = b"uniform" if is_even else b"normal"
    # numpy never changes the stream of this generator.
    random = np.random.RandomState([seed & 0xFFFFFFFF, zlib.crc32(name)])
    numbers = 2 * random.random_sample(POOL) - 1 if is_even else random.standard_normal(POOL)
    numbers = numbers if is_even else (numbers - numbers.mean()) / numbers.std()
    numbers = numbers.astype(np.float32)
    numbers.flags.writeable = False
    return numbers


@dataclass
class Rare:
    """The counts of zeros and subnormal numbers among `total` numbers.

    Kernels take other times for these. They are spread evenly over the pieces, and `passed` counts
    the numbers in the pieces so far.
    """

    zeros: int
    subnormals: int
    largest: float
    total: int
    passed: int = 0


@dataclass(frozen=True)
class Dead:
    """Slices of a tensor that have only rare numbers: channels that died in training.

    All tensors with `length` slices have the same dead ones. A slice is `inner` numbers that are
    next to one another.
    """

    inner: int
    length: int
    slices: int
    rare: Rare

    def among(self, start: int, count: int, seed: int) -> Any:
        """Return which of `count` numbers from `start` on are in these slices."""
        order = np.random.RandomState([seed & 0xFFFFFFFF, self.length]).permutation(self.length)
        is_dead = np.zeros(self.length, bool)
        is_dead[order[: self.slices]] = True
        return is_dead[np.arange(start, start + count) // self.inner % self.length]


@dataclass(frozen=True)
class Distribution:
    """The distribution of the numbers of a tensor, which are drawn in `precision`.

    `least` is the smallest normal number of their type, and `step` the smallest subnormal one.
    """

    mean: float
    deviation: float
    low: float
    high: float
    is_even: bool
    is_float: bool
    least: float
    step: float
    precision: Any
    rare: Rare
    dead: Dead | None = None
    seed: int = 0

    def pieces(self, total: int, random: np.random.RandomState) -> Iterator[Any]:
        for start in range(0, total, PIECE):
            numbers = self.draw(min(PIECE, total - start), random)
            places = numbers.size
            if self.dead:
                is_dead = self.dead.among(start, numbers.size, self.seed)
                self.put(self.dead.rare, numbers, np.flatnonzero(is_dead), random)
                places = np.flatnonzero(~is_dead)
            self.put(self.rare, numbers, places, random)
            yield numbers

    def draw(self, count: int, random: np.random.RandomState) -> Any:
        """Draw `count` numbers that are neither zero nor subnormal."""
        drawn, width = pool(self.seed, self.is_even), self.deviation
        start = random.randint(drawn.size)
        if self.is_even:
            room = max(0.0, min(self.mean - self.low, self.high - self.mean))
            width = min(math.sqrt(3) * width, room)
        drawn = drawn if start + count <= drawn.size else np.resize(drawn, start + count)
        drawn = drawn[start : start + count].astype(self.precision)
        with np.errstate(over="ignore"):
            numbers = drawn * self.precision(width) + self.precision(self.mean)
        np.clip(numbers, self.precision(self.low), self.precision(self.high), out=numbers)
        moved = numbers if self.is_float else np.rint(numbers)
        is_small = np.abs(moved) < self.least
        moved[is_small] = np.where(numbers[is_small] < 0, -self.least, self.least)
        return moved

    def put(self, rare: Rare, numbers: Any, places: Any, random: np.random.RandomState) -> None:
        """Put a piece's share of rare numbers at random `places`: an array, or their number."""
        both, before = rare.zeros + rare.subnormals, rare.passed
        rare.passed += places if isinstance(places, int) else places.size
        first, last = (both * passed // rare.total for passed in (before, rare.passed))
        if first == last:
            return
        put = random.permutation(places)[: last - first]
        zeros = rare.zeros * last // both - rare.zeros * first // both
        numbers[put[:zeros]] = 0
        steps = max(round(self.least / self.step) - 1, 1)
        steps = min(round(rare.largest / self.step) or steps, steps)
        sizes = self.step * random.randint(1, steps + 1, last - first - zeros, np.int64)
        numbers[put[zeros:]] = sizes * (1 - 2 * random.randint(0, 2, sizes.size, np.int64))


def pieces(note: dict[str, Any]) -> Iterator[Any]:
    """Yield the numbers of a weight or an input. Notes of one stream give the same numbers."""
    kind, total = np.dtype(note["type"]), note["count"]
    random = np.random.RandomState(note["stream"])
    if "rows" in note:  # Runs of one number: its bits, its count, and the increase in each row.
        for rows, *runs in note["rows"]:
            codes = np.array([code for code, _, _ in runs], f"u{kind.itemsize}")
            for row in range(rows):
                yield codes.repeat([n + row * step for _, n, step in runs]).view(kind)
    elif "codes" in note:  # The bits of numbers to choose from.
        codes = np.array(note["codes"], f"u{kind.itemsize}").view(kind)
        for start in range(0, max(total, 1), PIECE):
            yield codes[random.randint(codes.size, size=min(PIECE, total - start))]
    else:
        for numbers in distribution(note, kind).pieces(total, random):
            yield numbers.astype(kind)


def distribution(note: dict[str, Any], kind: np.dtype[Any]) -> Distribution:
    """Return the distribution in a note, which has the shares of rare numbers."""
    is_float, outside, dead = kind.kind == "f", note["count"], None
    least = float(np.finfo(kind).tiny) if is_float else 1.0
    step = least * float(np.finfo(kind).eps) if is_float else 1.0
    largest = 2 * note.get("subnormal", 0)
    if "dead" in note:
        inner, length, slices, zeros = note["dead"]
        inside = outside // length * slices
        outside -= inside
        dead = Dead(inner, length, slices, rare(zeros, 1 - zeros, largest, inside))
    return Distribution(
        mean=note["mean"],
        deviation=note["std"],
        low=note["low"],
        high=note["high"],
        is_even=note["even"],
        is_float=is_float,
        least=least,
        step=step,
        precision=np.float64 if kind.itemsize == 8 or not is_float else np.float32,
        rare=rare(note["zeros"], note["subnormals"], largest, outside),
        dead=dead,
    )


def rare(zeros: float, subnormals: float, largest: float, total: int) -> Rare:
    return Rare(round(zeros * total), round(subnormals * total), largest, max(total, 1))


def draw_weights(folder: Path, model: dict[str, Any]) -> None:
    """Draw the weights of a model, unless they exist."""
    target = folder / model["weights_file"]
    if not target.exists():
        unfinished = target.with_suffix(".part")
        with unfinished.open("wb") as file:
            for note in model["weights"]:
                file.seek(note["offset"])
                for piece in pieces(note):
                    file.write(piece.tobytes())
        unfinished.replace(target)


def draw_input(note: dict[str, Any]) -> Any:
    if "texts" in note:
        return np.array(note["texts"], object).reshape(note["shape"])
    numbers = np.concatenate(list(pieces(note["numbers"])))
    # Align the input as the runtime aligns tensors, because kernels may be slower otherwise.
    memory = np.empty(numbers.nbytes + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    aligned = memory[start : start + numbers.nbytes].view(numbers.dtype)
    aligned[:] = numbers
    return aligned.reshape(note["shape"])


def processor() -> str:
    """Return the name of the processor, or of its architecture if the name is not known."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main(seconds: float = 10) -> None:
    """Run the models of the folder in turn, and print the median of each."""
    import onnxruntime as ort

    folder = Path(__file__).resolve().parent
    plan = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: plan["cores"]])
    options = ort.SessionOptions()
    options.intra_op_num_threads = plan["cores"]
    for name, value in plan["options"].items():
        setattr(options, name, type(getattr(options, name))(value))
    for name, value in plan["config"].items():
        options.add_session_config_entry(name, value)
    runs: list[Any] = []
    for model in plan["models"]:
        draw_weights(folder, model)
        session = ort.InferenceSession(str(folder / model["file"]), options, plan["providers"])
        feeds = {note["name"]: draw_input(note) for note in model["inputs"]}
        runs.append((model["file"], session, feeds, []))
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(runs[0][3]) < 6:
        for _, session, feeds, times in runs:
            start = time.perf_counter()
            session.run(None, feeds)
            times.append(1000 * (time.perf_counter() - start))
    print(f"onnxruntime {ort.__version__}, numpy {np.__version__}, Python", end=" ")
    print(f"{platform.python_version()} on {processor()}, threads: {plan['cores']}")
    for file_name, _, _, times in runs:  # The first inferences warm up.
        kept = times[len(times) // 10 + 1 :]
        print(f"{file_name}: median {statistics.median(kept):.4g} ms of {len(kept)} inferences")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
