"""What it costs to give cases to machines of a cluster, and how that grows.

    python benchmarks/cluster.py                        10,000 cases on 8, 32 and 128 machines
    python benchmarks/cluster.py --cases 200 --workers 8

A scheduler, and machines that only pretend to measure (`cluster_machines.py`), in few processes of
this machine. A case takes as long on more machines as keeps the rate of cases the same, so a run
takes about 50 ms for each of its cases whatever the number of machines. On 128, a case takes 6.4 s,
as real ones do. The client is a process of its own, whose memory is that of pytest without its
tests.

Expected: at 128 machines at most 10 ms more for each case than without any overhead, at most 1 GB
in the client, and a throughput within 10 % of what the machines allow.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster_machines import pretend
from results import Expectation, Result, Row, Start, conclude, markdown, missing_packages, parser

from pytest_modelperf.cluster.cluster import open_cluster
from pytest_modelperf.cluster.records import Job

CASES = 10_000
WORKERS = (8, 32, 128)
SECONDS_PER_CASE = 0.05
MAX_OVERHEAD_MS = 10.0
MAX_CLIENT_BYTES = 1_000_000_000
MIN_EFFICIENCY = 0.9
# A cluster that is told from the figures, in docs/cluster.md.
LARGE_MACHINES = 1_000
LARGE_CASES = 100_000
_PROCESSES = 4
# A worker watches itself dozens of times a second, alone in its process on a real machine. Here
# many share a process, and would need more processor time for it than all cases.
_UNWATCHED = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}
_START_S = 300.0
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What it took to have so many cases carried out."""

    workers: int
    cases: int
    case_seconds: float
    wall_seconds: float
    client_cpu_seconds: float
    client_peak_bytes: int
    scheduler_cpu_seconds: float
    scheduler_peak_bytes: int


def run_cases(scheduler_file: str, workers: int, cases: int) -> dict[str, float]:
    """What the client finds; it is run in a process of its own."""
    case_seconds = SECONDS_PER_CASE * workers
    request = json.dumps({"seconds": case_seconds})
    with open_cluster(scheduler_file) as cluster:
        deadline = time.monotonic() + _START_S
        while len(cluster.machines) < workers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(cluster.machines)} of {workers} machines have come")
            time.sleep(0.1)
        cpu, begun = time.process_time(), time.monotonic()
        jobs = (Job(name=f"case {n}", work=pretend, request=request) for n in range(cases))
        futures = [cluster.submit(job) for job in jobs]
        # As tests do, in order, each result let go when it was read.
        for future in iter(futures):
            json.loads(future.result())
        wall = time.monotonic() - begun
        cpu = time.process_time() - cpu
    return {
        "case_seconds": case_seconds,
        "wall_seconds": round(wall, 3),
        "client_cpu_seconds": round(cpu, 3),
        "client_peak_bytes": _peak_bytes(resource.getrusage(resource.RUSAGE_SELF)),
    }


def measure(workers: int, cases: int) -> Run:
    """One run, with processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scheduler.json")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths())}
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(file)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not file.is_file() or not file.stat().st_size:
            time.sleep(0.05)
        with _machines(file, workers, environment | _UNWATCHED):
            asked = ["--client", str(file), "--workers", str(workers), "--cases", str(cases)]
            answer = subprocess.run(
                [sys.executable, __file__, *asked], check=True, stdout=subprocess.PIPE,
                env=environment,
            ).stdout  # fmt: skip
        scheduler.send_signal(signal.SIGTERM)
        _, _, used = os.wait4(scheduler.pid, 0)
    return Run(
        workers=workers,
        cases=cases,
        scheduler_cpu_seconds=round(used.ru_utime + used.ru_stime, 3),
        scheduler_peak_bytes=_peak_bytes(used),
        **json.loads(answer.splitlines()[-1]),
    )


@contextmanager
def _machines(file: Path, workers: int, environment: dict[str, str]) -> Iterator[None]:
    """So many machines in a few processes."""
    shares = [len(range(n, workers, _PROCESSES)) for n in range(min(_PROCESSES, workers))]
    processes = [
        subprocess.Popen(
            [sys.executable, str(_HERE / "cluster_machines.py"), str(file), str(share)],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for share in shares
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _paths() -> tuple[str, ...]:
    return str(_HERE), str(_HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])


def _peak_bytes(used: resource.struct_rusage) -> int:
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _ideal_seconds(row: Row) -> float:
    """How long the machines take if nothing keeps them waiting."""
    return float(row["case_seconds"]) * -(-int(row["cases"]) // int(row["workers"]))


def _overhead_ms(row: Row) -> float:
    return 1000 * (float(row["wall_seconds"]) - _ideal_seconds(row)) / int(row["cases"])


def tables(result: Result) -> dict[str, str]:
    header = (
        "machines", "cases", "a case takes", "all took", "of what the machines allow",
        "overhead a case", "client", "scheduler", "client's memory", "scheduler's memory",
    )  # fmt: skip
    lines = [
        (
            str(row["workers"]),
            f"{row['cases']:,}",
            f"{row['case_seconds']:.1f} s",
            f"{row['wall_seconds']:.0f} s",
            f"{100 * _ideal_seconds(row) / row['wall_seconds']:.0f} %",
            f"{_overhead_ms(row):.2f} ms",
            f"{1000 * row['client_cpu_seconds'] / row['cases']:.1f} ms a case",
            f"{1000 * row['scheduler_cpu_seconds'] / row['cases']:.1f} ms a case",
            f"{row['client_peak_bytes'] / 1e6:.0f} MB",
            f"{row['scheduler_peak_bytes'] / 1e6:.0f} MB",
        )
        for row in result.rows["runs"]
    ]
    return {"cluster": markdown(header, lines), "cluster outlook": _outlook(result.rows["runs"])}


def _outlook(rows: Sequence[Row]) -> str:
    """What the figures of the worst run mean for a cluster that was not measured."""
    lines = []
    for who in ("scheduler", "client"):
        seconds = max(float(row[f"{who}_cpu_seconds"]) / int(row["cases"]) for row in rows)
        peak = max(float(row[f"{who}_peak_bytes"]) / int(row["cases"]) for row in rows)
        lines.append(
            (
                f"the {who}",
                f"{1 / seconds:.0f} a second",
                f"{LARGE_MACHINES * seconds:.1f} s",
                f"{LARGE_CASES * seconds / 60:.1f} min",
                f"{LARGE_CASES * peak / 1e9:.1f} GB",
            )
        )
    header = (
        "", "carries so many cases", f"{LARGE_MACHINES:,} machines are busy if a case takes",
        f"{LARGE_CASES:,} cases need so much of its time", "and at most so much of its memory",
    )  # fmt: skip
    return markdown(header, lines)


def expectations(result: Result) -> tuple[Expectation, ...]:
    rows = result.rows["runs"]
    most = max(rows, key=lambda row: int(row["workers"]))
    overhead = _overhead_ms(most)
    peak = max(int(row["client_peak_bytes"]) for row in rows)
    efficiency = min(_ideal_seconds(row) / float(row["wall_seconds"]) for row in rows)
    return (
        Expectation(
            f"overhead of a case on {most['workers']} machines",
            f"at most {MAX_OVERHEAD_MS:.0f} ms",
            f"{overhead:.2f} ms",
            overhead <= MAX_OVERHEAD_MS,
        ),
        Expectation(
            "memory of the client",
            f"below {MAX_CLIENT_BYTES / 1e9:.0f} GB",
            f"{peak / 1e9:.2f} GB",
            peak < MAX_CLIENT_BYTES,
        ),
        Expectation(
            "throughput, of what the machines allow",
            f"at least {100 * MIN_EFFICIENCY:.0f} %",
            f"{100 * efficiency:.0f} %",
            efficiency >= MIN_EFFICIENCY,
        ),
    )


def main() -> int:
    options = _parse()
    if options.client is not None:
        print(json.dumps(run_cases(options.client, options.workers[0], options.cases)))
        return 0
    problem = missing_packages(("distributed",))
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    start = Start.now("cluster")
    runs = []
    for workers in options.workers:
        runs.append(asdict(measure(workers, options.cases)))
        print(f"{workers} machines took {runs[-1]['wall_seconds']:.0f} s", file=sys.stderr)
    result = start.finish({"runs": runs}, peers=("distributed",))
    return conclude(result, tables, expectations, options.json)


def _parse() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--cases", type=int, default=CASES, help="cases of each run")
    made.add_argument(
        "--workers", type=_numbers, default=WORKERS, metavar="N[,N...]", help="numbers of machines"
    )
    made.add_argument("--client", metavar="FILE", help=argparse.SUPPRESS)
    return made.parse_args()


def _numbers(text: str) -> Sequence[int]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
