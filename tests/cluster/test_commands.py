"""`modelperf worker`, as far as no scheduler is needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.timed_models import write_timed


@pytest.mark.skipif(find_spec("distributed") is None, reason="the extra is not installed")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("local:2",), "local:2 starts its own workers: give the address of a scheduler."),
        (("host:8786",), "type tcp://host:8786"),
        (("tcp://host:8786", "--tag", "a,b"), "a tag is a word without a comma, not 'a,b'."),
        (("tcp://host:8786", "--host", "192.0.2.77"), "cannot listen at 192.0.2.77: "),
        (("tcp://host:many",), "tcp://host:many is not the address of a scheduler: "),
    ],
)
def test_wrong_usage_is_one_message(arguments: tuple[str, ...], message: str) -> None:
    result = run("worker", *arguments)
    assert result.exit_code == 2
    assert message in result.err


@pytest.mark.skipif(find_spec("distributed") is None, reason="the extra is not installed")
def test_a_wrong_limit_is_reported_before_a_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELPERF_CACHE_LIMIT", "20 GB")
    model = tmp_path / "model.onnx"
    write_timed(model)
    for arguments in (
        ("worker", "tcp://127.0.0.1:9"),
        ("profile", str(model), "--cluster", "local:1"),
    ):
        result = run(*arguments)
        assert result.exit_code == 3
        assert "MODELPERF_CACHE_LIMIT is a number of bytes, not '20 GB'." in result.err


@pytest.mark.skipif(find_spec("distributed") is not None, reason="the extra is installed")
def test_without_the_extra_it_says_what_to_install() -> None:
    result = run("worker", "tcp://host:8786")
    assert result.exit_code == 2
    assert "pip install 'pytest-modelperf[cluster]'" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profile", "m.onnx", "--machine", "board"), "give --cluster too"),
        (("compare", "a.onnx", "b.onnx", "--machine", "board"), "give --cluster too"),
        (("sweep", "m.onnx", "--machine", "board"), "give --cluster too"),
        (("whatif", "m.onnx", "--machine", "board"), "give --cluster too"),
        (("bisect", "m.onnx", "--commits", "a..b", "--machine", "board"), "give --cluster too"),
        (("profile", "m.onnx", "--cluster", "local:2", "--static"), "leave out --static or"),
        (("compare", "a.onnx", "b.onnx", "--cluster", "local:2", "--static"), "leave out --static"),
        (("profile", "m.onnx", "--cluster", "local:2", "--roofline"), "leave out --roofline or"),
        (
            ("profile", "m.onnx", "--cluster", "local:2", "--measure-peaks"),
            "leave out --measure-peaks or",
        ),
    ],
)
def test_options_that_do_not_go_with_a_cluster(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.err
