"""How often verdicts are right, and how long they take, with two other ways to judge.

A chain of 20 equal blocks is compared with another of 20 (other weights, the same work), one of 21
and one of 22, so the truth is known: no change, +5 %, +10 %. Under noise two processes keep
40 % of each core busy. The duet is compared with pytest-benchmark's own gate and with a
Mann-Whitney test on the samples of two processes, one of them stored before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import onnx
import scipy
from commands import run_process
from draft import Draft
from expected import Expectation, expect_most, expect_share, rate_text
from kept import keep_row, left_of, read_records, read_rows
from loads import LOADS, QUIET, loaded
from measuring import Program, say
from real import load_pair
from results import Result, Rows, short_conditions
from shown import count_of, grouped, markdown, median_of, table

from pytest_modelperf.comparing.gates import Gate, latency_metrics
from pytest_modelperf.comparing.records import Verdict, worst
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.pairs.run import run_duet
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup

SAME = "A/A"
BLOCKS = {SAME: 20, "+5 %": 21, "+10 %": 22}
# The limit of one decision.
MAX_SECONDS = 10.0
_SETUP = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS))
VERDICTS = ("regressed", "passed", "improved", "inconclusive")
DUET = "duet"
PEER = "pytest-benchmark median:3%"
RANKS = "Mann-Whitney p<0.05"
# What is expected of the duet. How many it finds under noise depends on the noise: it may say that
# it does not know, but not that all is well.
MAX_ALARMS = 0.01
MIN_FOUND = 0.95
USUAL_SECONDS = 2.0

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
    """The conditions of one comparison: the truth, and the machine."""

    machine: str
    cores: int
    change: str

    @property
    def cores_text(self) -> str:
        return "one core" if self.cores == 1 else f"{self.cores} cores"

    @property
    def setting(self) -> Setting:
        return Setting(self.machine, self.cores, self.change)


@dataclass(frozen=True, slots=True)
class Answer(Setting):
    """What one way of judging said once, and how long that took."""

    way: str
    answer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Group(Setting):
    """What one way of judging said each time in one setting, and the seconds that each took."""

    way: str
    answers: tuple[str, ...]
    seconds: tuple[float, ...]


def measure(options: argparse.Namespace) -> Rows:
    counts = {SAME: options.aa, "+5 %": options.slower, "+10 %": options.slower}
    plan = plan_comparisons(LOADS[:1] if options.quiet else LOADS[:2], options.cores, counts)
    bench = Bench(options.folder, write_models(options.folder), has_peers=not options.no_peers)
    return {"answers": grouped_answers(bench.run(plan))}


def plan_comparisons(
    machines: Sequence[str], core_counts: Sequence[int], counts: Mapping[str, int]
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
    models: Mapping[str, Path]
    has_peers: bool

    def run(self, plan: Sequence[Setting]) -> list[Answer]:
        """The answers there are, those of earlier runs in this folder first."""
        done = [each.setting for each in self.answers() if each.way == DUET]
        left = left_of(plan, done)
        for machine, settings in groupby(left, lambda setting: setting.machine):
            with loaded(machine):
                for setting in settings:
                    for answer in list(self.judge(setting)):
                        keep_row(self.folder, "answers", answer)
            say(f"{machine}: done")
        return self.answers()

    def answers(self) -> list[Answer]:
        return read_records(read_rows(self.folder, "answers"), Answer)

    def judge(self, setting: Setting) -> Iterator[Answer]:
        before, after, cores = self.models["before"], self.models[setting.change], setting.cores

        def answer(way: str, verdict: str) -> Answer:
            return Answer(**asdict(setting), way=way, answer=verdict, seconds=_since(started))

        started = time.monotonic()
        verdict = decide(before, after, cores)
        yield answer(DUET, verdict.value)
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
        yield answer(PEER, "regressed" if has_failed else "passed")
        started = time.monotonic()
        now, earlier = samples_of(after, cores), json.loads(stored.read_text())
        is_slower = scipy.stats.mannwhitneyu(now, earlier, alternative="greater").pvalue < 0.05
        yield answer(RANKS, "regressed" if is_slower else "passed")


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def grouped_answers(answers: Sequence[Answer]) -> list[Group]:
    """The answers of each setting and way of judging."""
    groups = grouped(answers, lambda each: (each.machine, each.cores, each.change, each.way))
    return [
        Group(*key, tuple(each.answer for each in given), tuple(each.seconds for each in given))
        for key, given in groups.items()
    ]


def tables(result: Result) -> dict[str, str]:
    groups = result.read("answers", Group)
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
    columns: dict[str, Callable[[Group], object]] = {
        "machine": lambda group: group.machine,
        "cores": lambda group: group.cores,
        "judged by": lambda group: group.way,
        "change": lambda group: group.change,
        **{verdict: partial(_rate, verdict=verdict) for verdict in VERDICTS},
        "median s": lambda group: median_of(group.seconds),
    }
    return table(groups, columns, "lrll" + "r" * (len(VERDICTS) + 1))


def _rate(group: Group, verdict: str) -> str:
    count = group.answers.count(verdict)
    return f"{count} of {len(group.answers)}" if count else "-"


def short_table(groups: Sequence[Group]) -> str:
    """A line for every setting: what each way of judging did right or wrong in it."""
    found = {(group.setting, group.way): group for group in groups}
    columns: dict[str, Callable[[Setting], object]] = {
        "machine": lambda here: "as it is" if here.machine == QUIET else here.machine,
        "cores": lambda here: here.cores,
        "truth": lambda here: "no change" if here.change == SAME else here.change,
        "this tool": lambda here: outcome(found[here, DUET]),
        "median": lambda here: f"{median_of(found[here, DUET].seconds)} s",
        "pytest-benchmark, 3 %": lambda here: outcome(found.get((here, PEER))),
        "Mann-Whitney, 5 %": lambda here: outcome(found.get((here, RANKS))),
    }
    return table(dict.fromkeys(group.setting for group in groups), columns, "lrllrll")


def glance_table(groups: Sequence[Group]) -> str:
    """Return how often each way of judging was wrong, or gave no answer."""
    ways = (DUET, PEER, RANKS)
    same = [answers_of(groups, way, is_same=True) for way in ways]
    slower = [answers_of(groups, way, is_same=False) for way in ways]
    changes = dict.fromkeys(each.change.lstrip("+") for each in groups if each.change != SAME)
    every = [[*some, *others] for some, others in zip(same, slower, strict=True)]
    rows = [
        (title, *(count_of(answer in verdicts for answer in answers) for answers in among))
        for title, verdicts, among in (
            ("False alarm: unchanged model called slower", ("regressed",), same),
            (f"Missed: {' or '.join(changes)} slowdown passed", ("passed", "improved"), slower),
            ("No answer", ("inconclusive",), every),
        )
    ]
    header = ("result", "this tool", "pytest-benchmark's gate", "Mann-Whitney test")
    return markdown(header, rows, "lrrr")


def outcome(group: Group | None) -> str:
    """Alarms where nothing has changed, else what was found, and what was left open."""
    if group is None:
        return "-"
    noun = "alarms" if group.change == SAME else "found"
    is_open = group.answers.count("inconclusive")
    said = f"{group.answers.count('regressed')} of {len(group.answers)} {noun}"
    return f"{said}, {is_open} inconclusive" if is_open else said


def totals(groups: Sequence[Group]) -> str:
    """What a reader would add up."""
    same, slower = (answers_of(groups, DUET, is_same=is_same) for is_same in (True, False))
    alarms = same.count("regressed")
    passed = slower.count("passed") + slower.count("improved")
    text = (
        f"Of {len(same)} comparisons of a model with its like {alarms} raised an alarm, which "
        f"shows the rate of false alarms to be {rate_text(alarms, len(same))}. "
        f"Of {len(slower)} slower models {slower.count('regressed')} were found, "
        f"{slower.count('inconclusive')} called inconclusive and {passed} passed."
    )
    for way, name in ((PEER, "pytest-benchmark's gate"), (RANKS, "The Mann-Whitney test")):
        same, slower = (answers_of(groups, way, is_same=is_same) for is_same in (True, False))
        if same:
            text += (
                f" {name} raised an alarm in {count_of(each == 'regressed' for each in same)}, "
                f"found {count_of(each == 'regressed' for each in slower)} and passed the others."
            )
    return text


def expectations(result: Result) -> tuple[Expectation, ...]:
    """Of the duet. Under noise it may leave a question open, but not answer it wrongly."""
    groups = [each for each in result.read("answers", Group) if each.way == DUET]
    same, slower = (
        [each for each in groups if (each.change == SAME) == is_same] for is_same in (True, False)
    )
    found = []
    limit = f"at most {100 * MAX_ALARMS:g} %"
    for what, among, answers in (
        ("no change, called slower or faster", same, ("regressed", "improved")),
        ("slower, called not slower", slower, ("passed", "improved")),
    ):
        wrong = [answer in answers for group in among for answer in group.answers]
        if wrong:
            is_met = sum(wrong) <= MAX_ALARMS * len(wrong)
            found.append(Expectation(what, limit, count_of(wrong), is_met))
    for group in slower:
        if group.machine == QUIET:
            what = f"{group.change} on {group.cores_text}, machine as it is: found"
            is_found = (answer == "regressed" for answer in group.answers)
            found.append(expect_share(what, is_found, MIN_FOUND))
    for group in (*same, *slower):
        if group.machine == QUIET:
            what = f"{group.change} on {group.cores_text}, machine as it is: median"
            found.append(expect_most(what, statistics.median(group.seconds), USUAL_SECONDS))
    return tuple(found)


def answers_of(groups: Iterable[Group], way: str, *, is_same: bool) -> list[str]:
    """Those of one way of judging where nothing has changed, or where something has."""
    chosen = (each for each in groups if each.way == way and (each.change == SAME) == is_same)
    return [answer for group in chosen for answer in group.answers]


def decide(before: Path, after: Path, cores: int) -> Verdict:
    """What a gated comparison of two models says, the start of its worker included."""
    gate = Gate(judges_starts=False).divided(1)
    pair, place = load_pair(before, after, cores, _SETUP)
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
    against = ["--benchmark-compare=0001", "--benchmark-compare-fail=median:3%"]
    action = ["--benchmark-save=base"] if is_first else against
    given = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_peer.py", *action]
    variables = {"MODEL": str(model), "CORES": str(cores)}
    ran = run_process([sys.executable, *given], folder, environment=variables)
    if ran.code and "Performance has regressed" not in ran.output:
        raise RuntimeError(ran.output)
    return ran.code != 0


def write_models(folder: Path) -> dict[str, Path]:
    """The chain before, and one for each change."""
    models = {"before": chain(BLOCKS[SAME], 0)}
    models |= {change: chain(blocks, 1) for change, blocks in BLOCKS.items()}
    paths = {}
    for number, (name, model) in enumerate(models.items()):
        paths[name] = folder / f"chain{number}.onnx"
        if not paths[name].exists():
            paths[name].write_bytes(model.SerializeToString())
    return paths


def chain(blocks: int, seed: int) -> onnx.ModelProto:
    """So many times a convolution and a Relu, each with weights of its own."""
    draft, last = Draft(seed), "x"
    for index in range(blocks):
        weight = draft.drawn(64, 64, 3, 3, scale=1 / 24)
        made = draft.add("Conv", last, weight, name=f"conv{index}", pads=[1, 1, 1, 1])
        last = draft.add("Relu", made, name=f"relu{index}")
    return draft.model(last, [1, 64, 14, 14])


if __name__ == "__main__":
    program = Program("verdicts", __doc__, tables, expectations, peers=("pytest-benchmark",))
    program.number("--aa", 100, "comparisons without a change")
    program.number("--slower", 50, "comparisons of each slowdown")
    program.numbers("--cores", (1, 2), "core counts")
    program.flag("--quiet", "without added noise")
    program.flag("--no-peers", "the duet alone")
    sys.exit(program.run(measure))
