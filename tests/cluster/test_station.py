"""Dask workers with our preload module, and those that it refuses."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_modelperf.cluster.machines import (
    describe_station,
    read_machines,
    require_equal_versions,
    require_machines,
)
from pytest_modelperf.cluster.models import ModelCache, read_content
from pytest_modelperf.cluster.records import Machine
from pytest_modelperf.cluster.station import Station, make_station
from pytest_modelperf.errors import ClusterError, MeasureError
from pytest_modelperf.text.version import __version__
from tests.support.timed_models import write_timed

OURS = {"pytest-modelperf": __version__, "onnxruntime": "1.32.0"}


def dask_worker(threads: int = 1) -> SimpleNamespace:
    state = SimpleNamespace(nthreads=threads, total_resources={}, available_resources={})
    return SimpleNamespace(
        state=state,
        address="tcp://a:1",
        contact_address=None,
        extensions={},
        handlers={},
        periodic_callbacks={},
    )


def machine(name: str, **versions: str) -> Machine:
    known = {**OURS, **{key.replace("_", "-"): value for key, value in versions.items()}}
    return Machine(address=f"tcp://{name}", host=name, key="linux-4c", tags=(name,), versions=known)


def test_an_installed_station_offers_itself() -> None:
    worker = dask_worker()
    assert describe_station(worker) is None
    make_station(worker, {"MODELPERF_TAGS": "board, quiet,,board"}).install()
    assert worker.state.available_resources == worker.state.total_resources == {"modelperf": 1.0}
    (found,) = read_machines({"tcp://outside:2": describe_station(worker), "tcp://other": None})
    assert found.address == "tcp://outside:2"
    assert found.tags == ("board", "quiet")
    assert found.versions["pytest-modelperf"] == __version__


def test_a_machine_does_not_watch_itself_while_it_measures() -> None:
    worker, stopped = dask_worker(), list[str]()
    for name in ("heartbeat", "profile", "profile-cycle"):
        stop = partial(stopped.append, name)
        worker.periodic_callbacks[name] = SimpleNamespace(stop=stop)
    make_station(worker).install()
    assert stopped == ["profile", "profile-cycle"]
    assert list(worker.periodic_callbacks) == ["heartbeat"]


@pytest.mark.skipif(find_spec("distributed") is None, reason="needs the extra `cluster`")
def test_a_worker_forgets_what_its_nanny_has_set() -> None:
    from pytest_modelperf.cluster.station import remove_set

    environment = {"MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "4", "HOME": "/"}
    remove_set(SimpleNamespace(nanny=None), environment)
    assert len(environment) == 3
    remove_set(SimpleNamespace(nanny="tcp://a:2"), environment)
    assert environment == {"OMP_NUM_THREADS": "4", "HOME": "/"}


def test_a_worker_of_several_threads_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"has 4 threads.*--nthreads 1"):
        make_station(dask_worker(threads=4))


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ClusterError, match="MODELPERF_CACHE_LIMIT is a number of bytes"):
        make_station(dask_worker(), {"MODELPERF_CACHE_LIMIT": "20 GB"})


def test_a_model_that_cannot_be_kept_says_what_to_do(tmp_path: Path) -> None:
    write_timed(tmp_path / "sent.onnx")
    content = read_content(tmp_path / "sent.onnx")
    (tmp_path / "sent.onnx").rename(tmp_path / "elsewhere.onnx")
    cache = ModelCache(tmp_path / "cache")

    def send_model(_topic: str, _message: str) -> None:
        (incoming,) = cache.folder.iterdir()
        (tmp_path / "elsewhere.onnx").rename(incoming / "sent.onnx")
        # The cache writes a file of its own there.
        (incoming / ".in-use").mkdir()
        asyncio.run(station.end("job", None))

    station = Station(SimpleNamespace(log_event=send_model), machine("a"), cache)
    with (
        pytest.raises(MeasureError, match=r"\) cannot keep models: .*in-use.* Make room there, or"),
        station.having(content, "job", "topic"),
    ):
        pass
    assert not [*cache.folder.iterdir()]


def test_a_worker_without_our_package_is_not_used() -> None:
    assert read_machines({"tcp://other": ImportError("no module named pytest_modelperf")}) == ()


def test_one_name_of_a_set_is_enough() -> None:
    machines = [machine("a"), machine("b")]
    require_machines(machines, [(), ("a",), ("c", "b"), ("linux-4c",)], "tcp://s")
    with pytest.raises(ClusterError, match=r"no machine c or d\. It has: linux-4c, a \(1\), linux"):
        require_machines(machines, [("c", "d")], "tcp://s")
    with pytest.raises(ClusterError, match="modelperf worker tcp://s"):
        require_machines(machines, [("c",)], "tcp://s")


def test_local_workers_are_all_of_this_kind() -> None:
    with pytest.raises(ClusterError, match="address of a cluster that has the other kind") as error:
        require_machines([machine("a")], [("c",)], "local:4")
    assert "modelperf worker" not in str(error.value)


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"pytest_modelperf": "9.9"}, rf"here pytest-modelperf is {__version__}.*it is 9\.9"),
        ({"onnxruntime": "1.0"}, r"here onnxruntime is 1\.32\.0, and on old \(.*it is 1\.0"),
    ],
)
def test_a_difference_of_versions_names_both_sides(versions: dict[str, str], message: str) -> None:
    machines = [machine("same"), machine("old", **versions)]
    require_equal_versions(machines[:1], OURS, "onnxruntime")
    with pytest.raises(ClusterError, match=message):
        require_equal_versions(machines, OURS, "onnxruntime")


def test_an_engine_that_one_side_lacks_is_a_difference() -> None:
    with pytest.raises(ClusterError, match=r"here openvino is none, and on new .* it is 2026\.1"):
        require_equal_versions([machine("new", openvino="2026.1")], OURS, "openvino")
    require_equal_versions([machine("old", onnxruntime="1.0")], OURS, "an_engine_of_a_plugin")
