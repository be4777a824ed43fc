"""Jobs on a real cluster of processes: where they run, what they return, and how they are ended."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import external_data_helper

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.cluster.cluster import Cluster, run_on_cluster
from pytest_modelperf.cluster.models import PIECE_BYTES, read_content
from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.errors import BindingError, ClusterError, MeasureError
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.model_request import MeasureRequest, ModelRun
from pytest_modelperf.profiler.records import Outcome
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support import cluster_work
from tests.support.clusters import ClusterProcesses, Watched
from tests.support.processes import LIMIT_S, wait_until
from tests.support.small_models import parse
from tests.support.timed_models import write_timed

pytestmark = pytest.mark.slow

PLUGIN = "tests.support.faulty_plugin"
POLICY = SamplingPolicy(max_seconds=30.0)
TIMED = Setup(engine=EngineModule("timed", "tests.support.timed"), policy=POLICY)


def job(work: object, request: str = "", *machines: str, **more: object) -> Job:
    return Job(name="job", work=work, request=request, machines=machines, **more)  # type: ignore[arg-type]  # what a test gives


def result(future: Future[str]) -> str:
    return future.result(timeout=LIMIT_S)


# -- machines


def test_machines_say_what_they_are(cluster: Cluster) -> None:
    tags = sorted(machine.tags for machine in cluster.machines)
    assert tags == [("first", "board"), ("second",)]
    assert len({machine.key for machine in cluster.machines}) == 1
    assert all("onnxruntime" in machine.versions for machine in cluster.machines)


def test_a_tag_chooses_the_machine(cluster: Cluster) -> None:
    first = {result(cluster.submit(job(cluster_work.tell_process, "", "first"))) for _ in range(3)}
    board = {result(cluster.submit(job(cluster_work.tell_process, "", "board"))) for _ in range(3)}
    second = {result(cluster.submit(job(cluster_work.tell_process, "", "second")))}
    assert first == board
    assert len(first) == 1
    assert first.isdisjoint(second)


def test_the_key_of_a_machine_chooses_too(cluster: Cluster) -> None:
    key = cluster.machines[0].key
    assert result(cluster.submit(job(cluster_work.tell_process, "", key)))


def test_a_kind_of_machine_that_is_missing_is_an_error_before_anything_runs(
    cluster: Cluster,
) -> None:
    cluster.require([("first",), ("second", "elsewhere"), ()], "onnxruntime")
    with pytest.raises(ClusterError, match=r"has no machine gpu\. It has: .*board.*second"):
        cluster.require([("first",), ("gpu",)])


# -- results


def test_a_profile_of_a_cluster_is_that_of_this_machine(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "slow_400us.onnx"
    write_timed(path)
    request = ProfileRequest(batch_sizes=(1, 8), cores=(1,), seed=3)
    asked = MeasureRequest(ModelRun(path, TIMED), request)
    profile = run_on_cluster(cluster, asked, plugins=[PLUGIN], machines=())
    assert [case.case.id for case in profile.cases] == ["b1-c1", "b8-c1"]
    assert profile.model.path == str(path)
    assert profile.model.sha256 == read_content(path).digest
    assert profile.machine is not None
    assert profile.machine.key == cluster.machines[0].key
    for case in profile.cases:
        assert case.measured is not None
        assert case.latency.p50_ms == pytest.approx(0.4, rel=0.02)


def test_both_sides_of_a_comparison_run_in_one_job(cluster: Cluster, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.onnx" for name in ("base_200us", "slow_400us")]
    for weight, path in enumerate(paths, 1):
        write_timed(path, weight=weight)
    before, after = (ModelRun(path, TIMED) for path in paths)
    asked = CompareRequest(before=before, after=after, request=ProfileRequest(), gate=Gate())
    comparison = run_on_cluster(cluster, asked, plugins=[PLUGIN], machines=())
    assert comparison.verdict is Verdict.REGRESSED
    (median,) = [m for m in comparison.cases[0].metrics if m.name == "latency_p50"]
    assert median.ratio == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    ("do", "limit_s", "reason"),
    # Only what hangs has to be given up on.
    [("signal", 300.0, "SIGSEGV"), ("hang", 5.0, "no answer for .* s in round")],
)
def test_an_engine_that_crashes_or_hangs_ends_no_dask_worker(
    cluster: Cluster, tmp_path: Path, do: str, limit_s: float, reason: str
) -> None:
    before = result(cluster.submit(job(cluster_work.tell_process, "", "first")))
    path = tmp_path / "model.onnx"
    write_timed(path)
    setup = Setup(
        engine=EngineModule("faulty", "tests.support.faulty"),
        options={"at": "3", "do": do, "signal": "SIGSEGV"},
        policy=POLICY,
        limit_s=limit_s,
    )
    asked = MeasureRequest(ModelRun(path, setup), ProfileRequest())
    profile = run_on_cluster(cluster, asked, plugins=[PLUGIN], machines=["first"])
    assert profile.cases[0].outcome is Outcome.FAILED
    assert re.search(reason, profile.cases[0].reason)
    assert result(cluster.submit(job(cluster_work.tell_process, "", "first"))) == before


def test_an_error_keeps_its_class_and_its_remedy(cluster: Cluster) -> None:
    with pytest.raises(BindingError) as caught:
        result(cluster.submit(job(cluster_work.fail, "seq has no size.")))
    assert caught.value.worded(COMMAND_WORDING) == "seq has no size. Give --dim seq=SIZE."


def test_a_fault_ends_its_job_and_says_where_it_was(cluster: Cluster) -> None:
    with pytest.raises(MeasureError, match=r"(?s)a fault on .*have_a_fault.*ZeroDivisionError"):
        result(cluster.submit(job(cluster_work.have_a_fault)))


# -- one at a time, and cancelled


class Held:
    """A job that begins, and ends when it is let go."""

    def __init__(self, cluster: Cluster, folder: Path, *machines: str) -> None:
        self.begun = folder / "begun"
        self._go = folder / "go"
        os.mkfifo(self._go)
        self.future = cluster.submit(job(cluster_work.wait, str(folder), *machines))

    def wait_until_begun(self) -> list[int]:
        wait_until(lambda: self.begun.is_file() and self.begun.read_text().endswith("\n"))
        return [int(line) for line in self.begun.read_text().splitlines()]

    def let_go(self) -> str:
        self._go.write_text("done")
        return result(self.future)


def test_a_machine_takes_the_next_job_when_it_has_ended_one(
    watched_cluster: tuple[Cluster, Watched], tmp_path: Path
) -> None:
    cluster, watched = watched_cluster
    held = Held(cluster, tmp_path, "first")
    held.wait_until_begun()
    next_one = cluster.submit(job(cluster_work.tell_process, "", "first"))
    assert result(cluster.submit(job(cluster_work.tell_process, "", "second")))
    watched.wait_for(lambda: cluster.status.ended == 1)
    status = cluster.status
    assert [running.machine.tags for running in status.running] == [("first", "board")]
    assert status.waiting == 1
    assert not next_one.done()
    assert held.let_go() == "done"
    assert result(next_one)


def test_a_job_that_waits_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    held = Held(cluster, tmp_path, "first")
    held.wait_until_begun()
    waiting = [cluster.submit(job(cluster_work.measure_forever, "", "first")) for _ in range(9)]
    assert all(each.cancel() for each in waiting)
    assert held.let_go() == "done"
    # Any that ran would keep the machine.
    assert result(cluster.submit(job(cluster_work.tell_process, "", "first")))


def test_a_job_that_runs_ends_when_it_is_cancelled(
    watched_cluster: tuple[Cluster, Watched],
) -> None:
    cluster, watched = watched_cluster
    future = cluster.submit(job(cluster_work.measure_forever, "", "first"))
    watched.wait_for(lambda: any(each.progress is not None for each in cluster.status.running))
    assert cluster.status.running[0].progress == cluster_work.PROGRESS
    assert future.cancel()
    with pytest.raises(CancelledError):
        result(future)
    # The machine is free again.
    assert result(cluster.submit(job(cluster_work.tell_process, "", "first")))


# -- models by content


def external_model(folder: Path) -> Path:
    """A model whose weight is in a file next to it, and is larger than one piece."""
    folder.mkdir()
    count = PIECE_BYTES // 4 + 1000
    weight = np.arange(count, dtype=np.float32)
    model = parse(
        f"g (float[{count}] x) => (float[{count}] y) {{ y = Add(x, w) }}", weights={"w": weight}
    )
    external_data_helper.convert_model_to_external_data(model, location="weights.bin")
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def not_there(content: ModelContent, monkeypatch: pytest.MonkeyPatch) -> ModelContent:
    """The content at a path that this process has, and the workers have not."""
    path = Path(content.path)
    monkeypatch.chdir(path.parent)
    return replace(content, path=path.name)


def test_a_model_that_is_there_is_used_in_place(cluster: Cluster, tmp_path: Path) -> None:
    path = external_model(tmp_path / "models")
    content = read_content(path)
    shown = result(cluster.submit(job(cluster_work.show_models, models=(content,))))
    assert json.loads(shown) == {content.digest: [str(path), path.stat().st_ino]}


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_model_that_is_not_there_is_sent_once(
    cluster: Cluster,
    processes: ClusterProcesses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_direct: bool,
) -> None:
    path = external_model(tmp_path / f"models-{is_direct}")
    (path.parent / "weights.bin").write_bytes(
        bytes([is_direct]) * (path.parent / "weights.bin").stat().st_size
    )
    content = not_there(read_content(path), monkeypatch)
    if not is_direct:
        unreachable = {machine.address for machine in cluster.machines}
        cluster._runner._sender._unreachable.update(unreachable)
    shown = [
        json.loads(
            result(cluster.submit(job(cluster_work.show_models, "", "first", models=(content,))))
        )
        for _ in range(2)
    ]
    kept = processes.cache / "models" / content.digest
    assert shown[0] == {
        content.digest: [str(kept / "model.onnx"), (kept / "model.onnx").stat().st_ino]
    }
    assert shown[1] == shown[0]
    for name in ("model.onnx", "weights.bin"):
        assert (kept / name).read_bytes() == (path.parent / name).read_bytes()


def test_a_model_that_changes_on_its_way_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    write_timed(path, weight=1.0)
    content = not_there(read_content(path), monkeypatch)
    write_timed(path, weight=2.0)
    with pytest.raises(MeasureError, match="arrived with other content"):
        result(cluster.submit(job(cluster_work.show_models, models=(content,))))


def test_a_model_that_cannot_be_read_ends_its_job(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    write_timed(path, weight=7.0)
    content = not_there(read_content(path), monkeypatch)
    path.unlink()
    with pytest.raises(MeasureError, match=r"did not arrive at .*No such file"):
        result(cluster.submit(job(cluster_work.show_models, models=(content,))))


def test_a_context_is_what_a_work_is_given(tmp_path: Path) -> None:
    """The works of these tests are those that the cluster calls."""
    context = JobContext({"digest": tmp_path}, lambda _: None)
    assert json.loads(cluster_work.show_models("", context)) == {
        "digest": [str(tmp_path), tmp_path.stat().st_ino]
    }
