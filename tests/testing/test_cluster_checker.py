"""Jobs of a run and their results, with a cluster that carries out jobs at once."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.cluster.cluster import RequestText
from pytest_modelperf.cluster.records import Job, JobContext, Machine
from pytest_modelperf.cluster.wire import from_text
from pytest_modelperf.comparing.budgets import read_budgets
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import Measure, Verdict
from pytest_modelperf.errors import BaselineError, MeasureError, ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.profiler.engines.source import BUILT_IN, EngineModule
from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext
from pytest_modelperf.testing.checking import Checked, Checker
from pytest_modelperf.testing.on_cluster import CheckRequest, ClusterChecker, ClusterTerms
from pytest_modelperf.testing.outcomes import NOT_SENT, Source
from pytest_modelperf.testing.wording import PYTHON_WORDING
from tests.support.known import known
from tests.support.recordings import record_baseline
from tests.support.timed_models import record_base, store, write_timed

pytestmark = pytest.mark.slow

HERE = describe_machine().key
SETUP = Setup(
    engine=EngineModule("timed", "tests.support.timed"),
    policy=SamplingPolicy(max_seconds=30.0),
    wording=PYTHON_WORDING,
)


class FakeCluster:
    """Carries out jobs in this process when `let_go` is called, or at once."""

    name = "fake"

    def __init__(self, *machines: Machine, at_once: bool = True) -> None:
        self.machines = machines
        self.jobs: list[tuple[Job, Future[str]]] = []
        self.required: list[tuple[tuple[Collection[str], ...], str | None]] = []
        self._at_once = at_once

    def require(
        self, wanted: Iterable[Collection[str]], engine: str | None, modules: tuple[str, ...]
    ) -> None:
        assert modules == ("tests.support.faulty_plugin",)
        self.required.append((tuple(wanted), engine))

    def submit(self, job: Job) -> Future[str]:
        future: Future[str] = Future()
        self.jobs.append((job, future))
        if self._at_once:
            self.carry_out()
        return future

    def carry_out(self) -> None:
        for job, future in self.jobs:
            if future.done():
                continue
            context = JobContext({m.digest: Path(m.path) for m in job.models}, lambda _: None)
            try:
                future.set_result(job.work(job.request, context))
            except ModelPerfError as error:
                future.set_exception(error)


def machine(key: str, *tags: str) -> Machine:
    return Machine(address=f"tcp://{key}", host="host", key=key, tags=tags, versions={})


def context(folder: Path, **settings: object) -> CheckContext:
    given: dict[str, object] = {"today": dt.date(2026, 2, 1), **settings}
    return CheckContext(
        store=BaselineStore(folder / "baselines"),
        root=folder,
        extensions=load_extensions(["tests.support.faulty_plugin"]),
        **given,  # type: ignore[arg-type]  # what a test gives
    )


def check_of(model: ModelSource, name: str = "model", **more: object) -> CaseCheck:
    given: dict[str, object] = {"baseline": "base", **more}
    return CaseCheck(
        test=f"{name}.onnx::b1-c1",
        case_id="b1-c1",
        source=Source(path=f"{name}.onnx", line=None),
        model=model,
        request=ProfileRequest(),
        setup=SETUP,
        **{"gate": Gate(), **given},  # type: ignore[arg-type]  # what a test gives
    )


def on_cluster(
    cluster: FakeCluster,
    own: CheckContext,
    *,
    machines: tuple[str, ...] = (),
    takes_layers: bool = False,
    show: Callable[[], None] = lambda: None,
) -> ClusterChecker:
    terms = ClusterTerms(
        folder=own.root,
        kept=ExitStack(),
        machines=machines,
        plugins=("tests.support.faulty_plugin",),
        takes_layers=takes_layers,
        show=show,
    )
    return ClusterChecker(Checker(own), cluster, terms)  # type: ignore[arg-type]  # a fake one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a slower version of a model that has a baseline."""
    store(record_base(tmp_path), tmp_path / "baselines")
    write_timed(tmp_path / "slow_400us.onnx", weight=2.0)
    return tmp_path


def test_a_case_that_was_sent_has_the_outcome_of_one_that_stayed(folder: Path) -> None:
    own = context(folder)
    check = check_of(folder / "slow_400us.onnx", keeps_profile=True)
    there = on_cluster(FakeCluster(machine(HERE)), own).check(check)
    here = Checker(own).check(check)
    assert there.outcome.verdict is here.outcome.verdict is Verdict.REGRESSED
    assert there.outcome.model == here.outcome.model
    assert there.outcome.static == here.outcome.static
    assert there.outcome.machine == here.outcome.machine
    assert there.outcome.confidence == here.outcome.confidence
    names = [metric.name for metric in here.outcome.comparison.metrics]
    assert [metric.name for metric in there.outcome.comparison.metrics] == names
    assert known(there.profile).static == known(here.profile).static


def test_a_case_that_did_not_run_knows_the_machine_that_judged_it(folder: Path) -> None:
    """A history stores it under that machine."""
    model = folder / "base.onnx"
    setup = Setup(engine=BUILT_IN["onnxruntime"], policy=SamplingPolicy(max_seconds=0.5))
    recorded = record_baseline("own", str(model), ProfileRequest(), setup, dt.date(2026, 1, 31))
    store(recorded, folder / "baselines")
    check = replace(check_of(model, baseline="own"), setup=setup)
    outcome = on_cluster(FakeCluster(machine(HERE)), context(folder)).check(check).outcome
    assert outcome.verdict is Verdict.UNCHANGED
    assert known(outcome.machine).key == HERE


def test_a_check_arrives_as_it_was_sent(folder: Path) -> None:
    cluster = FakeCluster(machine("board"), at_once=False)
    budgets = read_budgets({"latency_ms": 3, "macs": "4G"}, "here")
    check = check_of(
        folder / "slow_400us.onnx",
        gate=Gate(level=0.002),
        budgets=budgets,
        measure=Measure.ALWAYS,
        accept="pytest --modelperf",
        machine="board",
        keeps_profile=True,
    )
    check = replace(check, request=ProfileRequest(cores=(3,)))
    on_cluster(cluster, context(folder)).submit([check])
    ((job, _),) = cluster.jobs
    (content,) = job.models
    sent = from_text(from_text(job.request, RequestText).text, CheckRequest)
    assert job.cores == 3
    assert sent.model.source == content.digest
    assert sent.model.setup.engine == check.setup.engine
    assert sent.request == check.request
    assert sent.check.of(check.model, check.request, check.setup) == check


def test_a_profile_comes_back_only_if_it_is_used(folder: Path) -> None:
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder))
    assert checker.check(check_of(folder / "slow_400us.onnx")).profile is None


def test_a_recording_comes_back_whole_and_is_of_the_model_here(folder: Path) -> None:
    model = (folder / "slow_400us.onnx").read_bytes()
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder, update=UpdateMode.ALL))
    outcome = checker.check(check_of(model, baseline="memory")).outcome
    assert outcome.recording is not None
    assert outcome.recording.model == replace(outcome.model, sha256=outcome.recording.model.sha256)
    assert outcome.model.name == "the given model"
    place = BaselineStore(folder / "baselines")
    place.apply(plan_update(None, outcome.recording))
    stored = known(place.read("memory"))
    assert stored.machine(HERE) is not None
    assert stored.twin == outcome.recording.twin


@pytest.mark.parametrize("measure", Measure)
def test_the_machine_gets_the_figures_to_measure(
    measure: Measure, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Measure] = []
    check = Checker.check

    def check_and_note(own: Checker, sent: CaseCheck) -> Checked:
        received.append(sent.measure)
        return check(own, sent)

    monkeypatch.setattr(Checker, "check", check_and_note)
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder))
    checker.check(check_of(folder / "base.onnx", measure=measure))
    assert received == [measure]


def test_layers_are_timed_on_the_machine_that_judged_the_case(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder), takes_layers=True)
    assert known(checker.check(check_of(folder / "base.onnx")).profile).measured is not None
    assert len(cluster.jobs) == 1


def test_a_case_goes_to_the_kind_of_machine_of_its_baseline(folder: Path) -> None:
    cluster = FakeCluster(machine("other-1c", "board"), machine(HERE, "board"), at_once=False)
    checker = on_cluster(cluster, context(folder))
    of_run = on_cluster(cluster, context(folder), machines=("board", "quiet"))
    known = check_of(folder / "base.onnx", "known")
    new = check_of(folder / "base.onnx", "new", baseline="none")
    named = check_of(folder / "base.onnx", "named", machine="other-1c")
    for each in (checker, of_run):
        each.require([known, new, named])
        each.submit([known, new, named])
    assert [job.machines for job, _ in cluster.jobs] == [
        (HERE,),
        (),
        ("other-1c",),
        (f"board+{HERE}", f"quiet+{HERE}"),
        ("board", "quiet"),
        ("other-1c+board", "other-1c+quiet"),
    ]
    assert [set(wanted) for wanted, _ in cluster.required] == [
        {(), ("other-1c",)},
        {("board", "quiet"), ("other-1c+board", "other-1c+quiet")},
    ]
    assert {engine for _, engine in cluster.required} == {"timed"}


def test_a_test_waits_for_the_job_that_was_submitted_ahead(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE), at_once=False)
    shown: list[int] = []

    def show() -> None:
        shown.append(len(cluster.jobs))
        cluster.carry_out()

    checker = on_cluster(cluster, context(folder), show=show)
    checks = [check_of(folder / "base.onnx", name) for name in ("first", "second", "third")]
    checker.submit(checks)
    assert checker.check(checks[1]).outcome.test == "second.onnx::b1-c1"
    assert shown == [3]
    # A test that runs again is measured again.
    assert checker.check(checks[1]).outcome.test == "second.onnx::b1-c1"
    assert len(cluster.jobs) == 4


def test_a_fixture_that_checks_another_model_first_gets_the_answer_about_that_one(
    folder: Path,
) -> None:
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder))
    check = check_of(folder / "base.onnx")
    checker.submit([check])
    other = check_of(folder / "slow_400us.onnx")
    assert checker.check(other).outcome.model.sha256 != checker.check(check).outcome.model.sha256
    assert len(cluster.jobs) == 2


def test_jobs_without_a_waiting_test_are_cancelled(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE), at_once=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    checker = on_cluster(cluster, context(folder), show=interrupt)
    checks = [check_of(folder / "base.onnx", name) for name in ("first", "second")]
    checker.submit(checks)
    checker.finish(checks[0].test)
    with pytest.raises(KeyboardInterrupt):
        checker.check(checks[1])
    assert [future.cancelled() for _, future in cluster.jobs] == [True, True]


def test_the_test_of_a_case_reports_what_is_wrong_with_it(folder: Path) -> None:
    (folder / "baselines" / "base" / "model.json").write_text("{")
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder))
    check = check_of(folder / "base.onnx")
    checker.submit([check])
    assert not cluster.jobs
    with pytest.raises(BaselineError, match=r"model\.json"):
        checker.check(check)


def test_a_model_that_is_written_again_is_read_again(folder: Path) -> None:
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder))
    check = check_of(folder / "base.onnx")
    assert checker.check(check).outcome.verdict is Verdict.PASSED
    write_timed(folder / "base.onnx", weight=3.0, width=16)
    assert checker.check(check).outcome.verdict is Verdict.REGRESSED


def test_a_function_is_measured_here_and_goes_to_no_other_machine(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder))
    setup = replace(SETUP, engine=BUILT_IN["callable"])
    check = replace(check_of(folder / "base.onnx", baseline=None), model=print, setup=setup)
    checker.submit([check])
    assert NOT_SENT in checker.check(check).outcome.comparison.notes
    assert not cluster.jobs
    with pytest.raises(UsageError, match="leave out its machine"):
        checker.check(replace(check, machine="board"))


def test_a_board_behind_a_gateway_is_measured_from_here(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder))
    setup = replace(SETUP, spec=f"popen//python={sys.executable}")
    check = replace(check_of(folder / "base.onnx"), setup=setup)
    checker.require([check])
    checker.submit([check])
    assert checker.check(check).outcome.comparison.notes.count(NOT_SENT) == 0
    assert checker.compare(check, check).verdict is Verdict.UNCHANGED
    assert not cluster.jobs
    with pytest.raises(UsageError, match="leave out its machine, or the gateway"):
        checker.check(replace(check, machine="board"))


def test_a_case_that_its_machine_cannot_measure_alone_says_why(folder: Path) -> None:
    write_timed(folder / "crash.onnx")
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder))
    with pytest.raises(MeasureError, match="it does not load"):
        checker.measure(check_of(folder / "crash.onnx"))


def test_a_recorded_case_is_compared_with_the_baseline_before_for_the_history(folder: Path) -> None:
    settings = {"update": UpdateMode.ALL, "history": folder / "history"}
    checker = on_cluster(FakeCluster(machine(HERE)), context(folder, **settings))
    link = known(checker.check(check_of(folder / "slow_400us.onnx")).outcome.link)
    (median,) = [m for m in known(link.comparison).metrics if m.name == "latency_p50"]
    assert median.ratio == pytest.approx(2.0, rel=0.02)


def test_a_budget_of_the_drift_says_how_to_judge_it(folder: Path) -> None:
    cluster = FakeCluster(machine(HERE))
    checker = on_cluster(cluster, context(folder, history=folder / "history"))
    check = check_of(folder / "base.onnx", budgets=read_budgets({"drift": "10 %"}, "here"))
    checker.submit([check])
    with pytest.raises(UsageError, match="modelperf history --fail-on-drift"):
        checker.check(check)
    assert not cluster.jobs
