"""What tracing costs: an inference that is recorded, and the reading of a long profile.

    python benchmarks/trace.py --overhead [--seconds 20]
    python benchmarks/trace.py --read [--megabytes 100]

Overhead is a ratio: inferences that are recorded against such as ONNX Runtime alone profiles.
Expected: recording adds no more to an inference than that profiling does, or at most 1 %.

The profile is that of a small model with a loop, its inferences repeated until the file is as
long. It is read in a process of its own, three times. Expected, of 100 MB: at most 3 s and 1 GB,
the best of the three, for what else the machine does can only take longer.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from trace_overhead import measure_overhead

MAX_READ_SECONDS = 3.0
MAX_READ_BYTES = 1_000_000_000
READ_TIMES = 3
MEGABYTE = 1_000_000

_READ_ONE = "--read-one"
_STARTED = re.compile(r'"ts" :(\d+)')
_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
model (float[1,8,16,16] x, int64 turns, bool go) => (float[1,8,16,16] y) {
    a = Relu(x)
    b = Sigmoid(a)
    c = Mul(a, b)
    d = Loop(turns, go, c) <body = turn (int64 i, bool more, float[1,8,16,16] s)
        => (bool again, float[1,8,16,16] t) {
        again = Identity(more)
        m = MatMul(s, s)
        t = Tanh(m)
    }>
    e = Softmax(d)
    y = Add(e, x)
}
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a profile was read once, in a fresh process."""

    seconds: float
    processor_seconds: float
    events: int
    peak_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--overhead", action="store_true", help="record inferences")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which sides run")
    parser.add_argument("--read", action="store_true", help="read a long profile")
    parser.add_argument("--megabytes", type=int, default=100, help="how long the profile is")
    parser.add_argument(_READ_ONE, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read_one is not None:
        print(json.dumps(_read_one(arguments.read_one)))
        return 0
    if not (arguments.read or arguments.overhead):
        parser.error("say what to measure: --overhead, --read")
    code = 0
    if arguments.overhead:
        code = measure_overhead(arguments.seconds, arguments.seed)
    return _read(arguments.megabytes) or code if arguments.read else code


# -- reading


def _read(megabytes: int) -> int:
    with tempfile.TemporaryDirectory(prefix="modelperf-trace-") as folder:
        path = Path(folder, "profile.json")
        _write_long_profile(path, megabytes * MEGABYTE)
        readings = [_read_in_process(path) for _ in range(READ_TIMES)]
    for reading in readings:
        print(
            f"{megabytes} MB, {reading.events:,} events: {reading.seconds:.2f} s "
            f"({reading.processor_seconds:.2f} s of a processor), "
            f"at most {reading.peak_bytes / MEGABYTE:,.0f} MB of memory"
        )
    best = min(readings, key=lambda reading: reading.seconds)
    share = megabytes / 100
    is_fast = best.seconds <= MAX_READ_SECONDS * share and best.peak_bytes <= MAX_READ_BYTES
    print(f"expected at most {MAX_READ_SECONDS * share:g} s, {MAX_READ_BYTES / MEGABYTE:,.0f} MB:",
          "met" if is_fast else "missed")  # fmt: skip
    return 0 if is_fast else 1


def _read_in_process(path: Path) -> Reading:
    command = [sys.executable, __file__, _READ_ONE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Reading(**json.loads(done.stdout))


def _read_one(path: Path) -> dict[str, float]:
    started, processed = time.perf_counter(), time.process_time()
    from pytest_modelperf.profile_files.ort_profile import read_ort_profile

    events = sum(1 for _ in read_ort_profile(path))
    seconds = time.perf_counter() - started
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "seconds": seconds,
        "processor_seconds": time.process_time() - processed,
        "events": events,
        "peak_bytes": peak,
    }


def _write_long_profile(path: Path, size: int) -> None:
    """A recorded profile whose inferences come again, later and later."""
    recorded = _record(path.parent).read_text(encoding="utf-8").splitlines()
    events = [line.rstrip(",") for line in recorded if line.startswith("{")]
    loads = [line for line in events if "model_run" not in line and '"Session"' in line][:2]
    inferences = [line for line in events if line not in loads]
    last = max(int(found) for found in _STARTED.findall("".join(inferences)))
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(loads))
        written = later = 0
        while written < size:
            text = ",\n".join(inferences)
            shifted = _STARTED.sub(lambda found: f'"ts" :{int(found[1]) + later}', text)  # noqa: B023  # it is called at once
            written += file.write(",\n" + shifted)
            later += 2 * last
        file.write("\n]\n")


def _record(folder: Path) -> Path:
    model = onnx.parser.parse_model(_MODEL)
    for node in model.graph.node:
        node.name = node.output[0]
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "recorded")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    inputs = {
        "x": np.full((1, 8, 16, 16), 0.01, np.float32),
        "turns": np.array(20),
        "go": np.ones((), np.bool_),
    }
    for _ in range(10):
        session.run(None, inputs)
    return Path(session.end_profiling())


if __name__ == "__main__":
    sys.exit(main())
