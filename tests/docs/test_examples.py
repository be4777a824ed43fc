"""The examples hold: what their headers say to type works, and their budgets are held."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.known import known
from tests.support.onnx_text import INSTALLED
from tests.support.shell import Type, make_shell, options_within

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
HEADERS = {
    "no_test": "pyproject.toml",
    "markers": "test_models.py",
    "fixture": "test_models.py",
    "generating": "test_decoder.py",
}
# The cases that the summary names, in its order.
CASES = {
    "no_test": [
        "classifier.onnx::b1-c1",
        "classifier.onnx::b8-c1",
        "encoder.onnx::b1-c1-seq16",
        "encoder.onnx::b1-c1-seq64",
    ],
    "markers": [
        "test_classifier[b1-c1]",
        "test_classifier[b8-c1]",
        "test_cost[b1-c1]",
        "test_cost_of_a_batch[b4-c1]",
    ],
    "fixture": ["test_against_the_baseline b1-c1"],
    "generating": [
        "test_decoder[b1-c1-prompt32-prefill]",
        "test_decoder[b1-c1-prompt32-generate16-step]",
        "test_decoder[b1-c1-prompt64-prefill]",
        "test_decoder[b1-c1-prompt64-generate16-step]",
    ],
}
# The time of each case. Most examples may end with too few samples for a median, if the machine
# stalls; this one asserts something of it.
SECONDS = {"fixture": 5.0}
# A budget of each, and one that no model keeps to.
BUDGETS = [
    ("no_test", 'macs = "1G"', 'macs = "1k"'),
    ("no_test", 'params = "100k"', "params = 100"),
    ("markers", 'params="40k"', "params=40"),
    ("generating", "cache_bytes_per_token=4096", "cache_bytes_per_token=40"),
]


@pytest.fixture
def type_in(tmp_path: Path) -> Type:
    return make_shell(tmp_path)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the folder, for what they make."""
    ignored = shutil.ignore_patterns("*.onnx", "baselines", "__pycache__", ".pytest_cache")
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored))


def commands(example: str) -> list[str]:
    """Return the commands in the header of an example: three lines, two of which end with one."""
    text = (EXAMPLES / example / HEADERS[example]).read_text("utf-8")
    header = known(re.match(r"(?:#.*\n)+", text))
    assert len(header[0].splitlines()) == 3
    return re.findall(r"^# .+:  +(\S.*)$", header[0], re.MULTILINE)


def summary_names(output: str) -> list[str]:
    """The cases in the table of the summary, which are parted from the rest by two spaces."""
    _, table = output.split(" model performance ")
    return re.findall(r"^(\S+(?: b\S+)?)  +(?:new|inconclusive) ", table, re.MULTILINE)


@pytest.mark.parametrize("example", HEADERS)
def test_the_command_of_the_header_checks_each_case(
    example: str, examples: Path, type_in: Type
) -> None:
    make, check = commands(example)
    made = type_in(make, examples / example)
    assert made.returncode == 0, made.stderr
    assert check == "pytest --modelperf"
    # Wide enough for whole names, however long the times next to them are.
    settings = {"COLUMNS": "160", "PYTEST_ADDOPTS": options_within(SECONDS.get(example, 0.5))}
    done = type_in(check, examples / example, **settings)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    assert "warning" not in done.stdout
    # The worst are first: noise may leave a budget open.
    assert sorted(summary_names(done.stdout)) == sorted(CASES[example])


@pytest.mark.parametrize(("example", "budget", "less"), BUDGETS)
def test_a_budget_of_an_example_can_fail(
    example: str, budget: str, less: str, examples: Path, type_in: Type
) -> None:
    make, check = commands(example)
    type_in(make, examples / example)
    file = examples / example / HEADERS[example]
    text = file.read_text("utf-8")
    assert budget in text
    file.write_text(text.replace(budget, less))
    done = type_in(f"{check} --modelperf-static-only", examples / example)
    assert done.returncode == 1, done.stdout
    assert re.search(r"^over budget: \w+", done.stdout, re.MULTILINE)


@pytest.mark.skipif(INSTALLED < (1, 18), reason="this onnx reads no names of nodes in a text")
def test_the_models_are_the_same_each_time(examples: Path, type_in: Type) -> None:
    for folder in ("first", "second"):
        made = type_in(f"python make_models.py {folder}", examples)
        assert made.returncode == 0, made.stderr
    for name in ("classifier.onnx", "encoder.onnx"):
        first, second = (examples / folder / name for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(INSTALLED < (1, 18), reason="this onnx reads no names of nodes in a text")
def test_the_demo_ends_with_the_report_of_a_failing_build(examples: Path, type_in: Type) -> None:
    done = type_in("sh demo.sh", examples)
    assert done.returncode == 0, done.stdout + done.stderr
    order = [
        r"^\$ modelperf profile models/classifier\.onnx ",
        r"^by layer type$",
        r"^\$ pytest --modelperf --modelperf-update-baseline models/classifier\.onnx$",
        r"^wrote the baselines? of models/classifier\.onnx$",
        r"^classifier\.onnx::b1-c1 +unchanged ",
        r"^=+ 1 passed ",
        r"^\$ python make_models\.py models --act HardSwish$",
        r"^=+ FAILURES =+$",
        # A machine may be too busy to show by how much it is slower, or that the layers explain it.
        (
            r"^(?:inconclusive: |regressed: (?s:.*?)"
            r"^(?:why|change): 4 Relu became Add, Clip, Mul and Div "
            r"(?s:.*?)^accept: pytest --modelperf --modelperf-update-baseline )"
        ),
        r"^=+ 1 failed ",
        r"^# That was the demo\.",
    ]
    assert re.search(".*?".join(f"(?m:{line})" for line in order), done.stdout, re.DOTALL), (
        done.stdout
    )
    # These are pytest's own: as long as a path, and under CI as a message.
    own = ("rootdir: ", "FAILED ")
    lines = [line for line in done.stdout.splitlines() if not line.startswith(own)]
    assert max(map(len, lines)) <= 80


def test_a_demo_whose_build_passes_is_a_failure(
    examples: Path, type_in: Type, tmp_path: Path
) -> None:
    before = sorted(examples.rglob("*"))
    replace_programs(tmp_path / "bin", "mkdir -p baselines")
    done = type_in("sh demo.sh", examples)
    assert done.returncode == 1
    assert "pytest ended with 0 where it should have failed with 1" in done.stderr
    assert sorted(examples.rglob("*")) == before


def test_a_demo_that_ends_early_cleans_up_after_itself(
    examples: Path, type_in: Type, tmp_path: Path
) -> None:
    replace_programs(tmp_path / "bin", "pwd; exit 4")
    done = type_in("sh demo.sh", examples)
    assert done.returncode == 4
    assert "FAILURES" not in done.stdout
    folder = Path(done.stdout.splitlines()[-1])
    assert folder.parent == tmp_path / "tmp"
    assert not folder.exists()


def replace_programs(programs: Path, pytest_does: str) -> None:
    """Replace the programs by ones that measure nothing: these tests are about the script alone."""
    (programs / "pytest").write_text(f"#!/bin/sh\n{pytest_does}\n")
    (programs / "modelperf").write_text("#!/bin/sh\n")
