"""What tracing costs: an inference that is recorded, and the reading of a long profile.

    python benchmarks/tracing.py                         both
    python benchmarks/tracing.py --overhead [--seconds 20]
    python benchmarks/tracing.py --read [--megabytes 100]

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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import results
from results import Expectation, Result, Row, Start, conclude, format_ns, markdown
from trace_overhead import MAX_RATIO, Found, measure_overhead

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

    megabytes: int
    seconds: float
    processor_seconds: float
    events: int
    peak_bytes: int


def main() -> int:
    parser = results.parser(__doc__)
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
    has_both = not (arguments.read or arguments.overhead)
    start = Start.now("tracing")
    rows: dict[str, Sequence[Row]] = {}
    if arguments.read or has_both:
        rows["readings"] = [asdict(each) for each in _read(arguments.megabytes)]
    if arguments.overhead or has_both:
        found = measure_overhead(arguments.seconds, arguments.seed)
        rows["overhead"] = [asdict(each) for each in found]
    return conclude(start.finish(rows), tables, expectations, arguments.json)


def readings_of(result: Result) -> list[Reading]:
    return [Reading(**row) for row in result.rows.get("readings", ())]


def overheads_of(result: Result) -> list[Found]:
    return [Found(**row) for row in result.rows.get("overhead", ())]


def tables(result: Result) -> dict[str, str]:
    made = {}
    readings, overheads = readings_of(result), overheads_of(result)
    if readings:
        made["tracing read"] = reading_table(readings)
    if overheads:
        made["tracing overhead"] = overhead_table(overheads)
    return made


def reading_table(readings: Sequence[Reading]) -> str:
    rows = [
        (
            f"{each.megabytes} MB, {each.events:,} events",
            f"{each.seconds:.2f} s",
            f"{each.processor_seconds:.2f} s",
            f"{each.peak_bytes / MEGABYTE:,.0f} MB",
        )
        for each in readings
    ]
    return markdown(("profile", "read in", "of a processor", "memory"), rows)


def overhead_table(overheads: Sequence[Found]) -> str:
    rows = [
        (
            each.name,
            format_ns(each.plain_ns),
            format_ns(each.own_adds_ns),
            format_ns(each.ours_adds_ns),
            f"{each.ours_over_own:.3f} ({each.low:.3f} to {each.high:.3f})",
            format_ns(each.finish_ns),
        )
        for each in overheads
    ]
    header = (
        "model", "plain", "its own profiling adds", "recording adds to that",
        "recorded over profiled", "writing the trace, each",
    )  # fmt: skip
    return markdown(header, rows)


def expectations(result: Result) -> tuple[Expectation, ...]:
    """Of the readings the best, for what else the machine does can only take longer."""
    expected = []
    readings = readings_of(result)
    if readings:
        best = min(readings, key=lambda reading: reading.seconds)
        most_seconds = MAX_READ_SECONDS * best.megabytes / 100
        expected.append(
            Expectation(
                f"a profile of {best.megabytes} MB is read, best of {len(readings)}",
                f"at most {most_seconds:g} s, {MAX_READ_BYTES / MEGABYTE:,.0f} MB",
                f"{best.seconds:.2f} s, {best.peak_bytes / MEGABYTE:,.0f} MB",
                best.seconds <= most_seconds and best.peak_bytes <= MAX_READ_BYTES,
            )
        )
    expected += [
        Expectation(
            f"recording adds to {each.name}",
            f"at most {100 * (MAX_RATIO - 1):.0f} %, or what profiling adds",
            f"{100 * (each.ours_over_own - 1):+.1f} % ({100 * (each.low - 1):+.1f} to "
            f"{100 * (each.high - 1):+.1f}), {format_ns(each.ours_adds_ns)} beside "
            f"{format_ns(each.own_adds_ns)}",
            each.is_within,
        )
        for each in overheads_of(result)
    ]
    return tuple(expected)


# -- reading


def _read(megabytes: int) -> list[Reading]:
    with tempfile.TemporaryDirectory(prefix="modelperf-trace-") as folder:
        path = Path(folder, "profile.json")
        _write_long_profile(path, megabytes * MEGABYTE)
        return [_read_in_process(path, megabytes) for _ in range(READ_TIMES)]


def _read_in_process(path: Path, megabytes: int) -> Reading:
    command = [sys.executable, __file__, _READ_ONE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Reading(megabytes=megabytes, **json.loads(done.stdout))


def _read_one(path: Path) -> dict[str, float]:
    started, processed = time.perf_counter(), time.process_time()
    from pytest_modelperf.tracing.files.ort_profile import OrtProfile

    events = sum(1 for _ in OrtProfile(path))
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
