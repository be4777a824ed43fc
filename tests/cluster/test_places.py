"""The ways in which a user names a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_modelperf.cluster.places import (
    ClusterPlace,
    is_encrypted,
    parse_place,
    scheduler_address,
)
from pytest_modelperf.errors import UsageError


def test_a_cluster_is_an_address_a_file_or_local(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    assert parse_place("tcp://host:8786") == ClusterPlace(address="tcp://host:8786")
    assert parse_place("tls://10.0.0.1:8786") == ClusterPlace(address="tls://10.0.0.1:8786")
    assert parse_place(str(file)) == ClusterPlace(scheduler_file=file)
    assert parse_place("local:4") == ClusterPlace(local_workers=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host:8786", "type tcp://host:8786, or tls://host:8786"),
        ("local:0", "local:4 for four workers"),
        ("local:", "local:4 for four workers"),
        ("missing.json", "there is no cluster 'missing.json'"),
        ("", "there is no cluster ''"),
        ("tcp://", "there is no cluster"),
    ],
)
def test_anything_else_is_an_error_that_says_what_to_type(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_place(text)
    assert message in str(caught.value)


def test_the_error_on_a_worker_does_not_advise_to_start_workers() -> None:
    with pytest.raises(UsageError, match="there is no cluster 'missing'") as caught:
        parse_place("missing", may_be_local=False)
    assert "local:" not in str(caught.value)


def test_a_scheduler_file_leads_to_its_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text('{"type": "Scheduler", "address": "tls://10.0.0.1:8786", "workers": {}}')
    address = scheduler_address(ClusterPlace(scheduler_file=file))
    assert address == scheduler_address(ClusterPlace(address=address)) == "tls://10.0.0.1:8786"
    assert is_encrypted(address)
    assert not is_encrypted("tcp://10.0.0.1:8786")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"address": 1}', b"\xff", b"[]"])
def test_a_file_that_names_no_scheduler_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "scheduler.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"scheduler\.json names no scheduler: .+ Start one with"):
        scheduler_address(ClusterPlace(scheduler_file=file))


@pytest.mark.parametrize(
    ("code", "needs"),
    [
        ("cli.main import main; main(['worker', 'local:1'])", "modelperf worker"),
        ("cli.main import main; main(['profile', 'm.onnx', '--cluster', 'local:1'])", "--cluster"),
        (
            "plugin import pytest; pytest.main(['--modelperf', '--modelperf-cluster=local:1'])",
            "--modelperf-cluster",
        ),
    ],
)
def test_without_the_extra_each_face_names_what_to_install(
    code: str, needs: str, tmp_path: Path
) -> None:
    blocked = "import sys; sys.modules['distributed'] = None; from pytest_modelperf."
    ended = subprocess.run(
        [sys.executable, "-c", blocked + code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = ended.stdout + ended.stderr
    assert f"{needs} needs distributed: pip install 'pytest-modelperf[cluster]'" in found
    assert "Traceback" not in found
