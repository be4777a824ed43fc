"""The benchmark of programs plants what it says, times it, and counts what was found and named."""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from program_repositories import (
    PlantingError,
    Trees,
    apply_edits,
    git,
    make_repository,
    planted,
    time_slowdown,
    with_kernels,
)
from programs import (
    SAME,
    Check,
    Cost,
    Size,
    beyond_start,
    expectations,
    planted_checks,
    tables,
)
from results import Result
from stranger_programs import (
    DUMP,
    KINDS,
    LOOP,
    MODEL,
    PROGRAMS,
    Edit,
    MoreKernels,
    Program,
    Slowdown,
)

from tests.docs.test_evidence import outcomes, result_of
from tests.support.small_models import parse

FOUND = Check(
    program="a",
    kind=LOOP,
    repetition=0,
    is_busy=False,
    verdict="regressed",
    ratio=1.2,
    seconds=9.0,
    rounds=6,
    reasons=("slow.py:loop: 1 call",),
    is_right=True,
)
QUIET = replace(FOUND, kind=SAME, verdict="passed", ratio=1.0, reasons=())
LARGE = Size("a", LOOP, 6.0, 1.1, 1.08, 1.12)
COST = Cost("a", 6.0, 1.5, 1.3)
# A loop with this many turns takes far longer than the rest of the program.
TINY = Program(
    "tiny",
    "tiny==1",
    "tiny/data.txt tiny/large.txt.xz=tiny/large.txt",
    """class Program:
    def run(self, x):
        print("a word of the program")
        return sum(i for i in range(1000)) + x


def example():
    return 1
""",
    """
## setup
@ program.py
-range(1000)
+range(2000)
## numpy loop: count
@ program.py
-range(2000)
+range(8000)
@
+# One more line.
 class Program:
## changed model: tiny/model.onnx 7
""",
)
SLOW, MORE = TINY.slowdowns


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The repository of a tiny program, made of a wheel."""
    wheel = tmp_path / "tiny.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/data.txt", "data")
        archive.writestr("tiny/large.txt.xz", lzma.compress(b"large"))
        archive.writestr("tiny/other.txt", "left out")
    folder = tmp_path / "tiny"
    make_repository(TINY, wheel, folder)
    return folder


def found(*checks: Check, sizes: tuple[Size, ...] = (LARGE,)) -> Result:
    return result_of(
        {
            "costs": [asdict(COST)],
            "sizes": [asdict(each) for each in sizes],
            "checks": [asdict(each) for each in checks],
        }
    )


def outputs_of(model: onnx.ModelProto, values: dict[str, npt.NDArray[Any]]) -> list[Any]:
    return list(ReferenceEvaluator(model).run(None, values))


# -- the repositories


def test_a_repository_has_the_files_of_the_wheel_that_are_named(repository: Path) -> None:
    assert (repository / "tiny" / "large.txt").read_text() == "large"
    tracked = set(git(repository, "ls-files").split())
    assert {"program.py", "test_program.py", "tiny/data.txt", "tiny/large.txt"} <= tracked
    assert "tiny/other.txt" not in tracked


@pytest.mark.parametrize("change", [None, SLOW])
def test_a_change_is_gone_after_its_check(repository: Path, change: Slowdown | None) -> None:
    with planted(change, repository):
        assert git(repository, "status", "--porcelain") == " M program.py\n"
    assert git(repository, "status", "--porcelain") == ""


def test_a_comment_changes_nothing_that_runs(repository: Path) -> None:
    before = compile((repository / "program.py").read_text(), "program.py", "exec")
    with planted(None, repository):
        after = compile((repository / "program.py").read_text(), "program.py", "exec")
    assert before.co_code == after.co_code


def test_an_edit_that_does_not_fit_is_an_error(repository: Path) -> None:
    with pytest.raises(PlantingError, match=r"program\.py has 'i' \d+ times"):
        apply_edits((Edit("program.py", "i", "j"),), repository)
    with pytest.raises(PlantingError, match="0 times"):
        apply_edits((Edit("program.py", "not there", ""),), repository)


def test_more_kernels_change_no_output() -> None:
    model = parse("g (int32[2, 3] x) => (float[2, 3] y) { f = Cast<to = 1>(x) y = Neg(f) }")
    values = {"x": np.array([[1, -2, 3], [4, 5, -6]], np.int32)}
    before = outputs_of(model, values)
    kernels = [node.op_type for node in model.graph.node]
    slower = with_kernels(model, 7)
    assert [node.op_type for node in slower.graph.node].count("Erf") == 7
    assert len(slower.graph.node) == len(kernels) + 11
    np.testing.assert_array_equal(before, outputs_of(slower, values))


def test_both_sides_are_timed_in_processes_of_their_own(repository: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    git(repository, "worktree", "add", "--detach", "--quiet", str(before))
    size = time_slowdown(SLOW, Trees(repository, before, tmp_path), 2, round_ns=1e7)
    assert size.low <= size.ratio <= size.high
    assert size.rounds == 2
    assert git(repository, "status", "--porcelain") == ""


def test_changes_are_read_from_their_text() -> None:
    assert TINY.files == [
        ("tiny/data.txt", "tiny/data.txt"),
        ("tiny/large.txt.xz", "tiny/large.txt"),
    ]
    assert TINY.edits == (Edit("program.py", "range(1000)", "range(2000)"),)
    more = Edit("program.py", "class Program:", "# One more line.\nclass Program:")
    edits = (Edit("program.py", "range(2000)", "range(8000)"), more)
    assert Slowdown(LOOP, "count", edits) == SLOW
    assert (MORE.kind, MORE.edits, MORE.model) == (MODEL, (), MoreKernels("tiny/model.onnx", 7))


# -- the programs


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_and_its_slowdowns_are_python(program: Program) -> None:
    compile(program.wrapper, "program.py", "exec")
    assert {"class Program:", "def example():"} <= set(program.wrapper.splitlines())
    kinds = [each.kind for each in program.slowdowns]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= set(KINDS)
    for each in program.slowdowns:
        assert bool(each.edits) != (each.model is not None)
        re.compile(each.reason)


def test_each_kind_of_slowdown_is_planted_in_several_programs() -> None:
    for kind in KINDS:
        assert sum(each.kind == kind for program in PROGRAMS for each in program.slowdowns) >= 3


# -- what was found


def test_all_is_met_if_each_slowdown_is_found_and_named() -> None:
    result = found(FOUND, QUIET)
    assert set(outcomes(expectations(result))) == {"met"}
    assert "1 of 1" in tables(result)["programs"]


def test_an_alarm_without_a_slowdown_is_missed() -> None:
    alarm = replace(QUIET, verdict="regressed", is_right=False)
    first, *_ = expectations(found(FOUND, QUIET, alarm))
    assert (first.found, first.outcome) == ("1 of 2", "missed")


def test_a_slowdown_that_is_open_or_has_another_reason_is_missed() -> None:
    checks = [
        *[replace(FOUND, repetition=number) for number in range(9)],
        replace(FOUND, verdict="inconclusive", is_right=False),
    ]
    _, is_found, is_right, *_ = expectations(found(*checks))
    assert (is_found.found, is_found.outcome) == ("9 of 10", "missed")
    assert (is_right.found, is_right.outcome) == ("9 of 10", "missed")


def test_a_change_that_is_too_small_is_not_asked_for() -> None:
    small = replace(LARGE, ratio=1.02)
    assert planted_checks(found(FOUND, QUIET, sizes=(small,))) == []
    assert planted_checks(found(FOUND, QUIET, sizes=())) == [FOUND]


def test_the_time_under_load_is_that_of_changes_of_ten_percent() -> None:
    slow = [replace(FOUND, is_busy=True, seconds=20.0), replace(FOUND, is_busy=True, kind=MODEL)]
    sizes = (LARGE, replace(LARGE, kind=MODEL, ratio=1.5), replace(LARGE, kind=DUMP))
    *_, last = expectations(found(*slow, sizes=sizes))
    assert (last.found, last.outcome) == ("20.00 s", "missed")


def test_the_cost_of_a_check_is_the_time_beyond_a_run_without_one() -> None:
    assert beyond_start(COST) == pytest.approx(0.2)
    assert beyond_start(replace(COST, plain=None)) is None


def test_the_benchmark_says_what_it_takes() -> None:
    program = Path(sys.modules["programs"].__file__ or "")
    done = subprocess.run(
        [sys.executable, str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "--busy" in done.stdout
