"""Draws the weights that were left out of the models of this folder, and times the models in turn.

It needs numpy and onnxruntime only: `python run.py`, or `python run.py 60` to take a minute. The
first run draws the weights from the notes in run.json, the same ones for everybody.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PIECE = 1 << 20  # So many numbers are drawn at once.


def draw(note: dict[str, Any], random: np.random.RandomState, start: int, count: int) -> Any:
    """So many numbers, distributed as the ones that were left out."""
    if "codes" in note:  # The bits of numbers to choose from.
        codes = np.array(note["codes"], f"u{np.dtype(note['type']).itemsize}")
        return codes.view(note["type"])[random.randint(codes.size, size=count)]
    spread = random.uniform(-1.732, 1.732, count) if note["even"] else random.randn(count)
    numbers = np.clip(note["mean"] + note["std"] * spread, note["low"], note["high"])
    is_float = note["type"].startswith("float")
    least = float(np.finfo(note["type"]).tiny) if is_float else 1
    numbers = numbers if is_float else np.rint(numbers)
    # Zeros and subnormal numbers take other times, so their shares are the original ones.
    numbers = np.where(abs(numbers) < least, np.copysign(least, note["mean"] + spread), numbers)
    places = np.arange(count)
    if "dead" in note:  # Channels of nothing else, the same ones in all weights.
        inner, length, slices, zeros = note["dead"]
        dead = np.random.RandomState([0, length]).permutation(length)[:slices]
        is_dead = np.isin((start + places) // inner % length, dead)
        put(numbers, places[is_dead], random, {0.0: zeros, note["subnormal"]: 1 - zeros})
        places = places[~is_dead]
    shares = {0.0: note["zeros"]}
    if "subnormal" in note:
        shares[note["subnormal"]] = note["subnormals"]
    put(numbers, places, random, shares)
    return numbers.astype(note["type"])


def put(numbers: Any, places: Any, random: Any, shares: dict[float, float]) -> None:
    """Put each number at its share of the places, which are drawn."""
    if any(shares.values()):
        left = random.permutation(places)
        for number, share in shares.items():
            count = round(places.size * share)
            numbers[left[:count]] = number
            left = left[count:]


def pieces(note: dict[str, Any]) -> Iterator[Any]:
    """The numbers of a weight or an input; a stream of the same number gives the same ones."""
    random = np.random.RandomState(note["stream"])
    if "rows" in note:  # Runs of one number: its bits, how often, and how much more each next row.
        unsigned = f"u{np.dtype(note['type']).itemsize}"
        for rows, *runs in note["rows"]:
            codes = np.array([code for code, _, _ in runs], unsigned)
            for row in range(rows):
                yield codes.repeat([n + row * step for _, n, step in runs]).view(note["type"])
        return
    for start in range(0, max(note["count"], 1), PIECE):
        yield draw(note, random, start, min(PIECE, note["count"] - start))


def draw_weights(folder: Path, model: dict[str, Any]) -> None:
    """Draw the weights of a model, unless they are there."""
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
    """One input of a model."""
    if "texts" in note:
        return np.array(note["texts"], object).reshape(note["shape"])
    numbers = np.concatenate(list(pieces(note["numbers"])))
    # It begins where the runtime lets a tensor begin: elsewhere a kernel may take longer.
    memory = np.empty(numbers.nbytes + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    aligned = memory[start : start + numbers.nbytes].view(numbers.dtype)
    aligned[:] = numbers
    return aligned.reshape(note["shape"])


def processor() -> str:
    """The name of the processor, as far as the system tells it."""
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
