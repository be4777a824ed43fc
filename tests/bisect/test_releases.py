"""Releases of a package: which are tried, and a real bisect of real releases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_modelperf.bisect.versions import list_versions, releases_between
from pytest_modelperf.errors import EnvironmentMakingError, UsageError
from tests.support.command import run
from tests.support.releases import RELEASES, use_releases
from tests.support.small_models import ones, parse

# The message of a bisect if no index can be reached, or if it has other releases.
UNLISTED = ("pip cannot list the versions", "the package index has no such onnxruntime")
LISTED = ("1.22.0", "1.20.1", "1.21.0", "1.21.0rc1", "1.10.0", "1.21.1", "1.20.0", "dev-nightly")


def listed(package: str) -> Sequence[str]:
    assert package == "engine"
    return LISTED


def between(good: str, bad: str, **more: bool) -> list[str]:
    found = releases_between("engine", good, bad, listed=listed, **more)
    return [version.name for version in found.versions]


def refusal(good: str, bad: str) -> str:
    with pytest.raises(UsageError) as caught:
        releases_between("engine", good, bad, listed=listed)
    return str(caught.value)


def test_final_releases_are_tried_in_their_order_and_not_in_that_of_text() -> None:
    assert between("1.10.0", "1.21.1") == ["1.10.0", "1.20.0", "1.20.1", "1.21.0", "1.21.1"]


def test_the_bad_end_may_be_the_older_one() -> None:
    assert between("1.21.1", "1.20.1") == ["1.21.1", "1.21.0", "1.20.1"]


def test_pre_releases_are_left_out_and_named() -> None:
    found = releases_between("engine", "1.20.1", "1.22.0", listed=listed)
    assert [(each.name, each.reason) for each in found.left_out] == [
        ("1.21.0rc1", "no final release; --pre tries these as well")
    ]


def test_pre_releases_are_tried_on_request() -> None:
    wanted = ["1.20.1", "1.21.0rc1", "1.21.0", "1.21.1", "1.22.0"]
    assert between("1.20.1", "1.22.0", takes_pre_releases=True) == wanted


def test_an_end_may_be_a_pre_release() -> None:
    assert between("1.20.1", "1.21.0rc1") == ["1.20.1", "1.21.0rc1"]


def test_versions_that_do_not_form_a_range_are_refused() -> None:
    assert "--good and --bad are both 1.21:" in refusal("1.21", "1.21.0")
    assert "--bad takes a version such as 1.22.0, not 'newest'" in refusal("1.20.1", "newest")
    said = refusal("1.20.2", "1.22.0")
    assert said.startswith("--good names 1.20.2, and the package index has no such engine")
    assert "1.20.1" in said
    assert "python -m pip index versions engine" in said


def test_a_package_that_is_an_option_of_pip_is_refused() -> None:
    with pytest.raises(UsageError, match="--package takes the name of a package"):
        releases_between("--index-url=http://x", "1.0", "2.0", listed=listed)


@pytest.mark.slow
def test_the_index_is_that_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels for another system do not count as versions for this Python."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    names = ("tiny-1.0-py3-none-any.whl", "tiny-1.10-py3-none-any.whl", "tiny-1.9-py3-none-any.whl")
    for name in (*names, "tiny-2.0-cp27-none-win32.whl", "tiny-3.0.tar.gz"):
        (folder / name).write_bytes(b"")
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in folder.iterdir())
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    assert list_versions("tiny") == ("1.10", "1.9", "1.0")
    with pytest.raises(EnvironmentMakingError, match="pip cannot list the versions of huge"):
        list_versions("huge")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --good and --bad with two versions of the engine"),
        (("--good", "1.0"), "give --good and --bad"),
        (("--commits", "a..b", "--good", "1.0"), "--good is about releases of the engine"),
        (("--commits", "a..b", "--pre"), "--pre is about releases of the engine"),
        (("--good", "1.0", "--bad", "1.1", "--cores", "1,2"), "a bisect runs a model at one size"),
        (("--good", "1.0", "--bad", "1.1", "--gateway", "ssh=x"), "leave out --gateway"),
        (("--good", "1.0", "--bad", "1.1", "--tolerance", "much"), "--tolerance takes a share"),
        (
            ("--good", "1", "--bad", "2", "--plugin", "tests.support.faulty_plugin", "--engine",
             "timed"),
            "the engine timed comes from a plugin: give --package",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(
    tmp_path: Path, arguments: Sequence[str], message: str
) -> None:
    result = run("bisect", write_model(tmp_path), *arguments)
    assert result.exit_code == 2
    assert message in result.err


def write_model(folder: Path) -> str:
    model = parse(
        "g (float[1,64] x) => (float[1,64] y) { h = MatMul(x, w) y = Relu(h) }",
        weights={"w": ones(64, 64)},
    )
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def bisected(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document; skips the test if no index lists these releases."""
    result = run("bisect", *arguments, "--max-seconds", "60", "--json", "-")
    if any(sign in result.err for sign in UNLISTED):
        pytest.skip(f"needs a package index: {result.err}")
    assert result.out, result.err
    document: dict[str, Any] = json.loads(result.out)
    return result.exit_code, document


@pytest.mark.slow
def test_a_release_is_found_in_environments_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environments are real. The engine of the tests says which release is slow in them."""
    use_releases(monkeypatch, *RELEASES)
    good, middle, bad = RELEASES
    exit_code, document = bisected(
        write_model(tmp_path), "--good", good, "--bad", bad, "--package", "onnxruntime",
        "--plugin", "tests.support.faulty_plugin", "--engine", "timed",
        "--engine-option", f"slow_since={middle}",
    )  # fmt: skip
    assert exit_code == 1
    assert [each["name"] for each in document["versions"]] == [good, middle, bad]
    (found,) = document["regressions"]
    assert (found["last_good"]["name"], found["first_bad"]["name"]) == (good, middle)
    assert found["pair"]["ratio"] == pytest.approx(1.5, rel=0.02)


@pytest.mark.slow
def test_real_releases_of_the_real_engine_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them is slower is not asserted: no release is eleven times as slow as another."""
    good, _, bad = RELEASES
    use_releases(monkeypatch, good, bad)
    exit_code, document = bisected(
        write_model(tmp_path), "--good", good, "--bad", bad, "--tolerance", "1000 %"
    )
    assert exit_code == 0
    assert document["verdict"] in {"passed", "improved"}
    (step,) = document["steps"]
    assert (step["version"], step["against"], step["answer"]) == (bad, good, "good")
    assert step["before_ms"] > 0
