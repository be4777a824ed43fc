"""Write what the corpora began with: `python -m fuzz.seeds FOLDER`, a folder in it to each target.

All of it is made as users make it: small models, a baseline that a test run recorded, recordings,
profiles that ONNX Runtime and `modelperf profile --json` wrote. After a change of what is written,
give it to `fuzz/run.py --seeds FOLDER --keep`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

import msgspec

from fuzz.documents import KEPT_NAME, MACHINE_KEY
from pytest_modelperf import trace
from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.document import write_machine, write_model
from pytest_modelperf.cluster.records import AnsweredRemedy, JobAnswer
from pytest_modelperf.cluster.wire import to_text
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.twin import make_twin, twin_bytes
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.roofline.peaks import keep_peaks
from pytest_modelperf.roofline.records import Bandwidth, Peaks
from pytest_modelperf.tracing.chrome_trace import TraceWriter
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from tests.graph import hostile
from tests.graph.twin_models import MODELS
from tests.history.lines import make_line
from tests.support import ort_profiles
from tests.support.baseline_writer import make_recording
from tests.support.small_models import parse

_ROOT = Path(__file__).resolve().parent.parent
# Weights and text of larger ones fill the input, and no change of them says anything.
_MAX_BYTES = 16_384


def models() -> Iterator[bytes]:
    """Models with control flow, functions, sequences, and all kinds of weights."""
    # Some end the process with an older onnx, others unfold to thousands of nodes.
    left_out = {name for name in hostile.CASES if "unfold" in name}
    left_out |= hostile._SINCE.keys()  # noqa: SLF001  # the tests have no other use of it
    cases = [build for name, build in hostile.CASES.items() if name not in left_out]
    for build in (*hostile.SEEDS, *cases, *MODELS.values()):
        yield build().SerializeToString()


def twins() -> Iterator[bytes]:
    for build in MODELS.values():
        yield twin_bytes(make_twin(open_model(build())))


def baselines() -> Iterator[bytes]:
    """Those of a recording made by hand, and those that are committed."""
    after = plan_update(None, make_recording(("b1-c1", "b8-c2"), key=MACHINE_KEY)).after
    if after is not None:
        yield write_model(after.model)
        yield from map(write_machine, after.machines)
    for path in sorted((_ROOT / "baselines").glob("*/*.json")):
        yield path.read_bytes()


def stored_profiles(folder: Path) -> Iterator[bytes]:
    """What the command writes, of a run and without one."""
    model = folder / "model.onnx"
    model.write_bytes(parse(ort_profiles.WIDE, opset=17).SerializeToString())
    for option in (("--static",), ("--max-seconds", "1", "--roofline")):
        written = subprocess.run(
            [sys.executable, "-m", "pytest_modelperf", "profile", str(model), *option, "--json=-"],
            cwd=_ROOT,
            env={**os.environ, "MODELPERF_CACHE_DIR": str(folder)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        document = json.loads(written)
        case = document["cases"][0]
        if case["raw"]:
            # Of many rounds and hundreds of samples a few say as much.
            case["raw"] = [{**each, "times_ns": each["times_ns"][:3]} for each in case["raw"][:6]]
        yield json.dumps(document).encode()


def kept_profiles(stored: Sequence[bytes]) -> Iterator[bytes]:
    """The same under a name, as `--name` keeps them."""
    for data in stored:
        date = "2026-01-31T12:00:00Z"
        document = {"schema": SCHEMA, "name": KEPT_NAME, "date": date}
        yield json.dumps({**document, "profile": json.loads(data)}).encode()


def peaks(folder: Path) -> Iterator[bytes]:
    """Those of two engines, of which one has no version."""
    for name, version in (("onnxruntime", "1.31.1"), ("mine", None)):
        keep_peaks(
            folder,
            Peaks(
                machine_key=MACHINE_KEY,
                engine=name,
                version=version,
                options={"graph_optimization_level": "all"},
                cores=2,
                macs_per_second={"float32": 95.25e9, "int8": 210e9},
                runs_as={"float16": "float32"},
                bandwidths=(Bandwidth(1 << 20, 120e9), Bandwidth(128 << 20, 11e9)),
                measured=dt.date(2026, 1, 31),
            ),
        )
        yield (folder / f"{MACHINE_KEY}.json").read_bytes()


def ort_profile_files(folder: Path) -> Iterator[bytes]:
    """Profiles of bodies within bodies, of a pool, and of several threads; as JSON too."""
    nested = ort_profiles.record(folder, ort_profiles.NESTED, ort_profiles.NESTED_INPUTS, runs=1)
    recorded = (
        nested,
        ort_profiles.record(folder, ort_profiles.SCAN, ort_profiles.SCAN_INPUTS, runs=1),
        ort_profiles.record(folder, ort_profiles.WIDE, ort_profiles.WIDE_INPUTS, runs=1, threads=3),
        ort_profiles.record(
            folder, ort_profiles.WIDE, ort_profiles.WIDE_INPUTS, runs=2, intra=2, is_parallel=True
        ),
    )
    for path in recorded:
        yield path.read_bytes()
    events = json.loads(nested.read_text(encoding="utf-8"))
    yield json.dumps({"traceEvents": events}, indent=1).encode()


def recorded_traces(folder: Path, profiles: Sequence[bytes]) -> Iterator[bytes]:
    """A recording with labels and two threads, and profiles of the runtime as traces."""
    model = folder / "recorded.onnx"
    model.write_bytes(parse(ort_profiles.WIDE, opset=17).SerializeToString())
    file = folder / "trace.json"
    with trace(file=file) as p:
        session = p.session(str(model), providers=["CPUExecutionProvider"])
        with p.record("outer"), p.record("inner"):
            session.run(None, ort_profiles.WIDE_INPUTS)
        other = Thread(target=session.run, args=(None, ort_profiles.WIDE_INPUTS))
        other.start()
        other.join()
    yield file.read_bytes()
    for data in profiles:
        path = folder / "profile.json"
        path.write_bytes(data)
        text = io.StringIO()
        writer = TraceWriter(text)
        for event in OrtProfile(path):
            writer.write(event)
        writer.finish({"schema": 1, "notes": ["one"]})
        yield text.getvalue().encode()


def histories() -> Iterator[bytes]:
    """Runs of one model whose baseline was replaced, with a step, and a case that only counts."""
    steady = [make_line(day, 1.0 + day % 3 / 1000, baseline="a") for day in range(4)]
    slower = [make_line(day, 1.1, baseline="model of day 3", reasons=("why",)) for day in (4, 5, 6)]
    counted = [make_line(day, None, case="b8-c2", macs=15 + day, baseline=None) for day in (7, 8)]
    for lines in (steady, [*steady, *slower], counted, [*steady, *slower, *counted]):
        yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def run_reports(folder: Path) -> Iterator[bytes]:
    """A run without a baseline, one that is over its budget, and one that is compared in time."""
    slower = ort_profiles.WIDE.replace("d = MatMul(b, c)", "e = MatMul(b, c) d = MatMul(e, x)")
    settings = '[tool.modelperf.models."m.onnx"]\n'
    budget = f"{settings}budget = {{macs = 1, p50_ms = 1e-6}}\n"
    runs = (
        (ort_profiles.WIDE, settings, ("--modelperf-static-only",)),
        (ort_profiles.WIDE, budget, ("--modelperf-static-only",)),
        (ort_profiles.WIDE, budget, ("--modelperf-update-baseline", "--modelperf-max-seconds=1")),
        (slower, settings, ("--modelperf-max-seconds=1",)),
    )
    for text, table, options in runs:
        (folder / "m.onnx").write_bytes(parse(text, opset=17).SerializeToString())
        (folder / "pyproject.toml").write_text(table)
        report = folder / "report.json"
        command = ("pytest", "-q", "-p", "pytest_modelperf.plugin", "--modelperf", *options)
        subprocess.run(
            [sys.executable, "-m", *command, f"--modelperf-json={report}"],
            cwd=folder,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=sys.stderr,
            check=False,
        )
        document = json.loads(report.read_bytes())
        for case in document["cases"]:
            # Layers are many, and a comment shows none.
            case["layers"] = case["layers"][:1]
        yield json.dumps(document).encode()


def answers() -> Iterator[bytes]:
    """A text, an error, and the profile of a case."""
    remedy = AnsweredRemedy(text="give {dims}", dims=("seq",), values={"a": "b"})
    yield to_text(JobAnswer(text="{}")).encode()
    yield to_text(JobAnswer(error="MeasureError", message="it ended", remedy=remedy)).encode()
    model = parse(ort_profiles.WIDE, opset=17)
    yield to_text(profile_model(model, ProfileRequest())).encode()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        stored = list(stored_profiles(scratch))
        profiles = list(ort_profile_files(scratch))
        recorded = list(recorded_traces(scratch, profiles))
        seeds = {
            "answer": list(answers()),
            "baseline": list(baselines()),
            "history": list(histories()),
            "kept-profile": list(kept_profiles(stored)),
            "model": list(models()),
            "ort-profile": profiles,
            "peaks": list(peaks(scratch)),
            "recorded-trace": recorded,
            "run-report": list(run_reports(scratch)),
            "stored-profile": stored,
            "trace-file": [*profiles, *recorded, *stored],
            "twin": list(twins()),
        }
    seeds["wire"] = [*seeds["model"], *seeds["twin"]]
    for target, inputs in seeds.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for data in inputs:
            if len(data) <= _MAX_BYTES:
                digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
                (folder / target / digest).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
