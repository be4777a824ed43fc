"""How long a session of many cases takes, and whether its time grows with their number alone.

    python benchmarks/suite.py                        10, 20, 40 and 60 cases: some fifteen minutes
    python benchmarks/suite.py --sizes 10,20 --kinds duet

`pytest --modelperf` on one tiny model: a chain of six products of 64x64 with a Relu each, 10 µs.
An input of its own, which is handed through, has another length in each case, so that there are as
many cases as one likes and each does the same work. Three kinds of sessions:

- new: there are no baselines, so each case is measured alone;
- unchanged: the model is the recorded one, so nothing runs;
- duet: its weights were replaced, so each case runs beside the twin of what was recorded.

Recording is timed too: five processes a case. Baselines grow with the sizes, so that a session of
10 cases reads those of 10 cases. Expected: at most 1.5 s a case in the largest session of each kind
but recording, and no more than 1.2 times as much as in the smallest one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import results
from onnx import TensorProto, helper, numpy_helper
from results import Expectation, Result, Start, conclude, markdown

KINDS = ("new", "recording", "unchanged", "duet")
MAX_SECONDS_A_CASE = 1.2
MAX_GROWTH = 1.2
MAX_SESSION_SECONDS = 3600

_ROOT = Path(__file__).resolve().parent.parent
_WIDTH = 64
_LAYERS = 6
_MODEL = "tiny.onnx"


@dataclass(frozen=True, slots=True)
class Session:
    """One run of pytest: from start to end of its process, and what each of its cases took."""

    kind: str
    seconds: float
    case_seconds: tuple[float, ...]
    verdicts: tuple[str, ...]

    @property
    def cases(self) -> int:
        return len(self.case_seconds)

    @property
    def seconds_a_case(self) -> float:
        """Those of the whole session, its start included."""
        return self.seconds / self.cases

    @property
    def drift(self) -> float:
        """What a case of the second half took, divided by what one of the first half took."""
        half = self.cases // 2
        return median(self.case_seconds[half:]) / median(self.case_seconds[:half])

    @property
    def told(self) -> str:
        return ", ".join(f"{count} {verdict}" for verdict, count in Counter(self.verdicts).items())


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--sizes", default="10,20,40,60", help="numbers of cases, growing")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    arguments = parser.parse_args()
    sizes, kinds = [int(size) for size in arguments.sizes.split(",")], arguments.kinds.split(",")
    if sizes != sorted(set(sizes)) or sizes[0] < 2:
        parser.error("--sizes takes growing numbers of 2 or more")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds takes some of {', '.join(KINDS)}")
    start = Start.now("suite")
    with tempfile.TemporaryDirectory() as name:
        sessions = run_sessions(Path(name).resolve(), sizes, kinds)
    rows = {"sessions": [session_to_row(session) for session in sessions]}
    return conclude(start.finish(rows), tables, expectations, arguments.json)


def run_sessions(folder: Path, sizes: Sequence[int], kinds: Sequence[str]) -> list[Session]:
    """Every session of every size; what later ones are held against is recorded in any case."""
    sessions = []
    for size in sizes:
        write_project(folder, size)
        if "new" in kinds:
            sessions.append(run_session("new", folder, "--modelperf-baseline-dir=none"))
        # What smaller sizes have recorded is there already.
        recorded = run_session("recording", folder, "--modelperf-update-baseline=new")
        if "recording" in kinds:
            sessions.append(recorded)
        if "unchanged" in kinds:
            sessions.append(run_session("unchanged", folder))
        if "duet" in kinds:
            write_model(folder / _MODEL, seed=1)
            sessions.append(run_session("duet", folder))
        print(f"{size} cases are done", file=sys.stderr)
    return sessions


def write_project(folder: Path, cases: int) -> None:
    """The model as it is recorded, and as many cases of it."""
    write_model(folder / _MODEL, seed=0)
    (folder / "pyproject.toml").write_text(
        f'[tool.modelperf.models."{_MODEL}"]\ndims = {{ mark = {list(range(1, cases + 1))} }}\n'
    )


def write_model(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes, weights, last = [helper.make_node("Identity", ["mark"], ["same"])], [], "x"
    for layer in range(_LAYERS):
        values = random.normal(0, _WIDTH**-0.5, (_WIDTH, _WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"], f"product{layer}"),
            helper.make_node("Relu", [f"m{layer}"], [f"y{layer}"], f"relu{layer}"),
        ]
        last = f"y{layer}"
    sizes: dict[str, tuple[int | str, ...]] = {"mark": ("mark",), "same": ("mark",)}
    sizes |= dict.fromkeys(("x", last), (1, _WIDTH))
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in sizes.items()
    }
    inputs, outputs = [infos["x"], infos["mark"]], [infos[last], infos["same"]]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)


def run_session(kind: str, folder: Path, *options: str) -> Session:
    """One run of pytest in a process of its own, with no plugin but ours."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_modelperf.plugin", "-q", "--modelperf"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, f"--modelperf-json={report}", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_SESSION_SECONDS,
    )
    seconds = time.perf_counter() - started
    # A false alarm is a finding and no failure of this program.
    if done.returncode not in {0, 1} or not report.exists():
        sys.exit(f"{kind}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    cases = json.loads(report.read_text("utf-8"))["cases"]
    return Session(
        kind,
        seconds,
        tuple(case["seconds"] for case in cases),
        tuple(case["verdict"] for case in cases),
    )


def session_to_row(session: Session) -> dict[str, object]:
    return {
        "kind": session.kind,
        "seconds": round(session.seconds, 2),
        "case_seconds": [round(seconds, 3) for seconds in session.case_seconds],
        "verdicts": session.verdicts,
    }


def sessions_of(result: Result) -> list[Session]:
    """Those of a kind together, the smallest first."""
    sessions = [
        Session(row["kind"], row["seconds"], tuple(row["case_seconds"]), tuple(row["verdicts"]))
        for row in result.rows["sessions"]
    ]
    return sorted(sessions, key=lambda session: (KINDS.index(session.kind), session.cases))


def tables(result: Result) -> dict[str, str]:
    rows = []
    for session in sessions_of(result):
        took = session.case_seconds
        rows.append(
            (
                session.kind,
                str(session.cases),
                f"{session.seconds:.1f}",
                f"{session.seconds_a_case:.2f}",
                f"{median(took):.2f}",
                f"{max(took):.2f}",
                f"{session.drift:.2f}",
                session.told,
            )
        )
    header = (
        "session", "cases", "s", "s a case", "median case", "longest", "2nd half / 1st", "verdicts",
    )  # fmt: skip
    return {"suite": markdown(header, rows, "lrrrrrrl")}


def expectations(result: Result) -> tuple[Expectation, ...]:
    """What a case takes in the largest session of a kind, and beside the smallest one."""
    expected = []
    for kind in KINDS:
        found = [session for session in sessions_of(result) if session.kind == kind]
        if not found or kind == "recording":
            continue
        first, last = found[0], found[-1]
        expected.append(
            Expectation(
                f"{kind}: a case in a session of {last.cases}",
                f"at most {MAX_SECONDS_A_CASE:g} s",
                f"{last.seconds_a_case:.2f} s",
                last.seconds_a_case <= MAX_SECONDS_A_CASE,
            )
        )
        if last is not first:
            growth = last.seconds_a_case / first.seconds_a_case
            expected.append(
                Expectation(
                    f"{kind}: the same beside a session of {first.cases}",
                    f"at most {MAX_GROWTH:g} times",
                    f"{growth:.2f} times",
                    growth <= MAX_GROWTH,
                )
            )
    return tuple(expected)


if __name__ == "__main__":
    sys.exit(main())
