"""How often verdicts are right, and how long they take, beside two other ways to judge.

    python benchmarks/verdicts.py                       all of it, two hours
    python benchmarks/verdicts.py --aa 25 --slower 12   fewer comparisons, some twenty minutes
    python benchmarks/verdicts.py --cores 1 --quiet     one core count, without added noise
    python benchmarks/verdicts.py --folder f --at-most 9    nine more each time, all of them shown

A chain of 20 equal blocks is compared with another of 20 (other weights, the same work), one of 21
and one of 22, so that the truth is known: no change, +5 %, +10 %. Under noise two processes keep
40 % of each core busy. Beside the duet stand what people use: pytest-benchmark's own gate
(`--benchmark-compare-fail=median:3%`), run as it is, and a Mann-Whitney test on the samples of two
processes, one of them stored before.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
import results
import scipy
from onnx import TensorProto, helper, numpy_helper
from results import (
    Expectation,
    Result,
    Start,
    conclude,
    markdown,
    missing_packages,
    short_conditions,
)

from pytest_modelperf.comparing.gates import Gate, latency_metrics
from pytest_modelperf.comparing.records import Verdict, worst
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import run_duet
from pytest_modelperf.profiler.prepare import Model, Pair, prepare
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup

BLOCKS = {"A/A": 20, "+5 %": 21, "+10 %": 22}
# What one decision may take at most.
MAX_SECONDS = 10.0
BUSY_SHARE = 0.4
VERDICTS = ("regressed", "passed", "improved", "inconclusive")
DUET = "duet"
PEER = "pytest-benchmark median:3%"
RANKS = "Mann-Whitney p<0.05"
# What is expected of the duet. How many it finds under noise depends on the noise: it may say that
# it does not know, but not that all is well.
MAX_ALARMS = 0.01
MIN_FOUND = 0.95
USUAL_SECONDS = 2.0
CONFIDENCE = 0.95

_BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + 0.1 * float(sys.argv[2])
    while time.monotonic() < end:
        pass
    time.sleep(0.1 * (1 - float(sys.argv[2])))
"""

_PEER_TEST = """
import os
import numpy as np
import onnxruntime as ort

def test_model(benchmark):
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["CORES"])
    session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
    feed = {"x": np.ones((1, 64, 14, 14), np.float32)}
    benchmark(session.run, None, feed)
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What one comparison is made under: the truth, and the machine."""

    machine: str
    cores: int
    change: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one way of judging said once, and how long that took."""

    setting: Setting
    way: str
    answer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Group:
    """What one way of judging said each time in one setting, and the seconds that each took."""

    setting: Setting
    way: str
    answers: tuple[str, ...]
    seconds: tuple[float, ...]

    @property
    def total(self) -> int:
        return len(self.answers)

    def count(self, *answers: str) -> int:
        return sum(answer in answers for answer in self.answers)


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--aa", type=int, default=100, help="comparisons without a change")
    parser.add_argument("--slower", type=int, default=50, help="comparisons of each slowdown")
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--quiet", action="store_true", help="without added noise")
    parser.add_argument("--no-peers", action="store_true", help="the duet alone")
    parser.add_argument("--folder", type=Path, help="keep the answers here, and go on from them")
    parser.add_argument("--at-most", type=int, help="stop after so many comparisons")
    arguments = parser.parse_args()
    peers = () if arguments.no_peers else ("pytest-benchmark",)
    missing = missing_packages(peers)
    if missing:
        parser.error(missing)
    counts = {"A/A": arguments.aa, "+5 %": arguments.slower, "+10 %": arguments.slower}
    machines = ["quiet"] if arguments.quiet else ["quiet", "40 % taken"]
    plan = plan_comparisons(machines, list(map(int, arguments.cores.split(","))), counts)
    start = Start.now("verdicts")
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, write_models(folder), has_peers=not arguments.no_peers)
        answers = bench.run(plan, arguments.at_most)
    left = len(plan) - sum(answer.way == DUET for answer in answers)
    if left > 0:
        print(f"{left} of {len(plan)} comparisons are still to be made", file=sys.stderr)
    rows = {"answers": [group_to_row(group) for group in grouped(answers)]}
    result = start.finish(rows, is_complete=left <= 0, peers=peers)
    return conclude(result, tables, expectations, arguments.json)


def plan_comparisons(
    machines: Sequence[str], core_counts: Sequence[int], counts: dict[str, int]
) -> list[Setting]:
    """Every comparison, the kinds of change in turn, so that all see the same hours."""
    return [
        Setting(machine, cores, change)
        for machine in machines
        for cores in core_counts
        for number in range(max(counts.values()))
        for change, count in counts.items()
        if number < count
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder of the models and of the answers so far."""

    folder: Path
    models: dict[str, Path]
    has_peers: bool

    def run(self, plan: Sequence[Setting], at_most: int | None) -> list[Answer]:
        """The answers there are, those of earlier runs in this folder first."""
        answers = self.read()
        if answers:
            print(f"goes on from {len(answers)} answers in {self.folder}", file=sys.stderr)
        done = Counter(answer.setting for answer in answers if answer.way == DUET)
        left = []
        for setting in plan:
            if done[setting]:
                done[setting] -= 1
            else:
                left.append(setting)
        for machine, settings in groupby(left[:at_most], lambda setting: setting.machine):
            with noise(machine != "quiet"):
                for setting in settings:
                    answers += self.keep(list(self.judge(setting)))
                    made = sum(answer.way == DUET for answer in answers)
                    if made % 10 == 0:
                        print(f"{made} of {len(plan)} comparisons", file=sys.stderr)
        return answers

    def judge(self, setting: Setting) -> Iterator[Answer]:
        before, after, cores = self.models["before"], self.models[setting.change], setting.cores
        started = time.monotonic()
        verdict = decide(before, after, cores)
        yield Answer(setting, DUET, verdict.value, time.monotonic() - started)
        if not self.has_peers:
            return
        place = self.folder / f"{setting.machine.replace(' ', '')}-{cores}"
        stored = place / "stored.json"
        if not stored.exists():
            place.mkdir(exist_ok=True)
            run_peer(before, place, cores, is_first=True)
            stored.write_text(json.dumps(list(samples_of(before, cores))))
        started = time.monotonic()
        has_failed = run_peer(after, place, cores, is_first=False)
        answer = "regressed" if has_failed else "passed"
        yield Answer(setting, PEER, answer, time.monotonic() - started)
        started = time.monotonic()
        now = samples_of(after, cores)
        earlier = json.loads(stored.read_text())
        is_slower = scipy.stats.mannwhitneyu(now, earlier, alternative="greater").pvalue < 0.05
        answer = "regressed" if is_slower else "passed"
        yield Answer(setting, RANKS, answer, time.monotonic() - started)

    def keep(self, answers: list[Answer]) -> list[Answer]:
        with (self.folder / "answers.jsonl").open("a") as file:
            file.writelines(json.dumps(asdict(answer)) + "\n" for answer in answers)
        return answers

    def read(self) -> list[Answer]:
        path = self.folder / "answers.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Answer(Setting(**read.pop("setting")), **read) for read in map(json.loads, lines)]


def grouped(answers: Iterable[Answer]) -> list[Group]:
    """The answers of each setting and way of judging, in the order in which these came up."""
    groups: dict[tuple[Setting, str], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.setting, answer.way), []).append(answer)
    return [
        Group(
            setting,
            way,
            tuple(answer.answer for answer in given),
            tuple(round(answer.seconds, 3) for answer in given),
        )
        for (setting, way), given in groups.items()
    ]


def group_to_row(group: Group) -> dict[str, object]:
    return {
        **asdict(group.setting),
        "way": group.way,
        "answers": group.answers,
        "seconds": group.seconds,
    }


def groups_of(result: Result) -> list[Group]:
    return [
        Group(
            Setting(row["machine"], row["cores"], row["change"]),
            row["way"],
            tuple(row["answers"]),
            tuple(row["seconds"]),
        )
        for row in result.rows["answers"]
    ]


def tables(result: Result) -> dict[str, str]:
    groups = groups_of(result)
    return {
        "verdicts": full_table(groups),
        "verdicts short": f"{short_table(groups)}\n\n{totals(groups)}",
        "verdicts glance": (
            f"{glance_table(groups)}\n\nThe models are chains of convolutions. Measured "
            f"{short_conditions(result)}."
        ),
    }


def full_table(groups: Sequence[Group]) -> str:
    """A line for every setting and way of judging."""
    rows = []
    for group in groups:
        setting = group.setting
        counts = [group.count(verdict) for verdict in VERDICTS]
        rates = [f"{count} of {group.total}" if count else "-" for count in counts]
        took = f"{statistics.median(group.seconds):.1f}"
        named = (setting.machine, str(setting.cores), group.way, setting.change)
        rows.append((*named, *rates, took))
    header = ("machine", "cores", "judged by", "change", *VERDICTS, "median s")
    return markdown(header, rows, "lrll" + "r" * (len(VERDICTS) + 1))


def short_table(groups: Sequence[Group]) -> str:
    """A line for every setting: what each way of judging did right or wrong in it."""
    found = {(group.setting, group.way): group for group in groups}
    rows = []
    for setting in dict.fromkeys(group.setting for group in groups):
        ours = found[setting, DUET]
        rows.append(
            (
                "as it is" if setting.machine == "quiet" else setting.machine,
                str(setting.cores),
                "no change" if setting.change == "A/A" else setting.change,
                outcome(ours),
                f"{statistics.median(ours.seconds):.1f} s",
                *(outcome(found.get((setting, way))) for way in (PEER, RANKS)),
            )
        )
    header = (
        "machine", "cores", "truth",
        "this tool", "median", "pytest-benchmark, 3 %", "Mann-Whitney, 5 %",
    )  # fmt: skip
    return markdown(header, rows, "lrllrll")


def glance_table(groups: Sequence[Group]) -> str:
    """Return how often each way of judging was wrong, or gave no answer."""
    ways = (DUET, PEER, RANKS)
    same = [of_way(groups, way, is_same=True) for way in ways]
    slower = [of_way(groups, way, is_same=False) for way in ways]
    changes = dict.fromkeys(group.setting.change.lstrip("+") for group in slower[0])
    every = [[*some, *others] for some, others in zip(same, slower, strict=True)]
    rows = [
        (title, *(_share(some, verdicts) for some in among))
        for title, verdicts, among in (
            ("False alarm: unchanged model called slower", ("regressed",), same),
            (f"Missed: {' or '.join(changes)} slowdown passed", ("passed", "improved"), slower),
            ("No answer", ("inconclusive",), every),
        )
    ]
    header = ("result", "this tool", "pytest-benchmark's gate", "Mann-Whitney test")
    return markdown(header, rows, "lrrr")


def _share(groups: Sequence[Group], verdicts: Sequence[str]) -> str:
    return f"{count(groups, *verdicts)} of {total(groups)}" if groups else "-"


def outcome(group: Group | None) -> str:
    """Alarms where nothing has changed, else what was found, and what was left open."""
    if group is None:
        return "-"
    noun = "alarms" if group.setting.change == "A/A" else "found"
    is_open = group.count("inconclusive")
    said = f"{group.count('regressed')} of {group.total} {noun}"
    return f"{said}, {is_open} inconclusive" if is_open else said


def totals(groups: Sequence[Group]) -> str:
    """What a reader would add up."""
    same, slower = of_way(groups, DUET, is_same=True), of_way(groups, DUET, is_same=False)
    alarms = count(same, "regressed")
    most = 100 * highest_rate(alarms, total(same))
    text = (
        f"Of {total(same)} comparisons of a model with its like {alarms} raised an alarm, which "
        f"shows the rate of false alarms to be at most {most:.2g} % ({100 * CONFIDENCE:g} % "
        f"confidence). Of {total(slower)} slower models "
        f"{count(slower, 'regressed')} were found, {count(slower, 'inconclusive')} called "
        f"inconclusive and {count(slower, 'passed', 'improved')} passed."
    )
    for way, name in ((PEER, "pytest-benchmark's gate"), (RANKS, "The Mann-Whitney test")):
        same, slower = of_way(groups, way, is_same=True), of_way(groups, way, is_same=False)
        if total(same):
            text += (
                f" {name} raised an alarm in {count(same, 'regressed')} of {total(same)}, found "
                f"{count(slower, 'regressed')} of {total(slower)} and passed the others."
            )
    return text


def expectations(result: Result) -> tuple[Expectation, ...]:
    """Of the duet. Under noise it may leave a question open, but not answer it wrongly."""
    groups = groups_of(result)
    same, slower = of_way(groups, DUET, is_same=True), of_way(groups, DUET, is_same=False)
    wrong = [
        ("no change, called slower or faster", same, ("regressed", "improved")),
        ("slower, called not slower", slower, ("passed", "improved")),
    ]
    found = [
        Expectation(
            what,
            f"at most {100 * MAX_ALARMS:g} %",
            f"{count(among, *answers)} of {total(among)}",
            count(among, *answers) <= MAX_ALARMS * total(among),
        )
        for what, among, answers in wrong
        if among
    ]
    for group in slower:
        if group.setting.machine == "quiet":
            share = group.count("regressed")
            found.append(
                Expectation(
                    f"{group.setting.change} on {cores_of(group)}, machine as it is: found",
                    f"at least {100 * MIN_FOUND:g} %",
                    f"{share} of {group.total}",
                    share >= MIN_FOUND * group.total,
                )
            )
    for group in (*same, *slower):
        if group.setting.machine == "quiet":
            took = statistics.median(group.seconds)
            found.append(
                Expectation(
                    f"{group.setting.change} on {cores_of(group)}, machine as it is: median",
                    f"at most {USUAL_SECONDS:g} s",
                    f"{took:.1f} s",
                    took <= USUAL_SECONDS,
                )
            )
    return tuple(found)


def of_way(groups: Iterable[Group], way: str, *, is_same: bool) -> list[Group]:
    """Those of one way of judging where nothing has changed, or where something has."""
    return [
        group for group in groups if group.way == way and (group.setting.change == "A/A") == is_same
    ]


def count(groups: Iterable[Group], *answers: str) -> int:
    return sum(group.count(*answers) for group in groups)


def total(groups: Iterable[Group]) -> int:
    return sum(group.total for group in groups)


def highest_rate(hits: int, tries: int) -> float:
    """The upper bound of Clopper and Pearson for a rate that came up so often."""
    if not tries:
        return 1.0
    found = scipy.stats.binomtest(hits, tries, alternative="less").proportion_ci(
        CONFIDENCE, method="exact"
    )
    return float(found.high)


def cores_of(group: Group) -> str:
    return "one core" if group.setting.cores == 1 else f"{group.setting.cores} cores"


def decide(before: Path, after: Path, cores: int) -> Verdict:
    """What a gated comparison of two models says, the start of its worker included."""
    setup = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS))
    request = ProfileRequest(cores=(cores,))
    pair = Pair(
        prepare(Model.load(before, request, Extensions())),
        prepare(Model.load(after, request, Extensions())),
        setup,
        setup,
    )
    gate = Gate(judges_starts=False).divided(1)
    place = CasePlace(Case(1, cores), 1, 1, lambda _: None)
    rounds = run_duet(pair, gate, place)
    return worst(metric.verdict for metric in latency_metrics(rounds, gate) if metric.decides)


def samples_of(model: Path, cores: int) -> Sequence[int]:
    """The samples of one process with one session, as a stored run has them."""
    policy = SamplingPolicy(max_seconds=1.0, min_rounds=1, max_rounds=1)
    profile = measure_model(model, ProfileRequest(cores=(cores,)), Setup(policy=policy))
    (case,) = profile.cases
    if case.measured is None:
        raise RuntimeError(case.reason)
    return [ns for made in case.measured.rounds for ns in made.times_ns]


def run_peer(model: Path, folder: Path, cores: int, *, is_first: bool) -> bool:
    """Whether pytest-benchmark fails this model against the run that it stored."""
    (folder / "test_peer.py").write_text(_PEER_TEST)
    # Of its own, so that no settings of a folder above are found.
    (folder / "pytest.ini").write_text("[pytest]\n")
    action = (
        ["--benchmark-save=base"]
        if is_first
        else [
            "--benchmark-compare=0001",
            "--benchmark-compare-fail=median:3%",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_peer.py", *action],
        cwd=folder,
        env={**os.environ, "MODEL": str(model), "CORES": str(cores)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "Performance has regressed" not in done.stdout + done.stderr:
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode != 0


@contextmanager
def noise(is_on: bool) -> Iterator[None]:  # noqa: FBT001  # on or off
    """Two neighbours that each keep a part of one core busy."""
    neighbours = []
    if is_on:
        for core in sorted(os.sched_getaffinity(0))[:2]:
            command = [sys.executable, "-c", _BUSY, str(core), str(BUSY_SHARE)]
            neighbours.append(subprocess.Popen(command))
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def write_models(folder: Path) -> dict[str, Path]:
    """The chain before, and one for each change."""
    models = {"before": chain(BLOCKS["A/A"], 0)}
    models |= {change: chain(blocks, 1) for change, blocks in BLOCKS.items()}
    paths = {}
    for number, (name, model) in enumerate(models.items()):
        paths[name] = folder / f"chain{number}.onnx"
        if not paths[name].exists():
            paths[name].write_bytes(model.SerializeToString())
    return paths


def chain(blocks: int, seed: int) -> onnx.ModelProto:
    """So many times a convolution and a Relu, each with weights of its own."""
    random = np.random.RandomState(seed)
    nodes, weights, last = [], [], "x"
    for index in range(blocks):
        values = (random.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{index}"))
        name = f"conv{index}"
        nodes += [
            helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], name, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"),
        ]
        last = f"r{index}"
    shape = [1, 64, 14, 14]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


if __name__ == "__main__":
    sys.exit(main())
