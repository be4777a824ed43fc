"""The search over units whose times are known: what it keeps, and what it asks for that."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.cuts import Cut, OpenPlans, open_plans
from pytest_modelperf.profiler.prepare import Model, PairOf, prepare_pair
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.reducing.records import StepAnswer, UnitSearch
from pytest_modelperf.reducing.search import (
    ReduceRule,
    UnitQuestion,
    deliver,
    find_smallest,
    levels_for,
    pair_files,
)
from tests.support.reductions import make_reduction
from tests.support.small_models import parse

LEVEL = 0.005
RULE = ReduceRule(allowed=0.05, level=LEVEL)


@dataclass
class TableUnits:
    """Answers by the times of units before and after, and keeps what it was asked.

    `together` are units that are slow only if all of them run. Those in `failing` do not run by
    themselves, and `open` says that nothing is ever shown.
    """

    before: Sequence[float]
    after: Sequence[float]
    together: Collection[int] = ()
    failing: Collection[int] = ()
    is_open: bool = False
    asked: list[UnitQuestion] = field(default_factory=list)

    def __call__(self, question: UnitQuestion) -> Metric:
        self.asked.append(question)
        if set(question.units) & set(self.failing):
            raise MeasureError("there is no kernel for Tan by itself")
        before = sum(self.before[unit] for unit in question.units)
        after = sum(self.after[unit] for unit in question.units)
        if self.together and set(self.together) <= set(question.units):
            after += before
        is_worse = after > before * (1 + question.allowed)
        verdict = Verdict.REGRESSED if is_worse else Verdict.PASSED
        return Metric(
            "latency_p50", before, after, Verdict.INCONCLUSIVE if self.is_open else verdict
        )


def search(units: TableUnits, longer: Sequence[float] | None = None) -> UnitSearch:
    growth = [b - a for a, b in zip(units.before, units.after, strict=True)]
    return find_smallest(longer or growth, units, RULE, lambda: 0.0)


@given(st.data(), st.integers(1, 80))
def test_one_slow_unit_is_found_at_any_position_and_with_any_profile(
    data: st.DataObject, count: int
) -> None:
    slow = data.draw(st.integers(0, count - 1))
    profile = data.draw(st.permutations([float(each) for each in range(count)]))
    after = [1.0] * count
    # So slow that all units together are still beyond the tolerance.
    after[slow] += count
    found = search(TableUnits([1.0] * count, after), profile)
    assert (found.kept, found.is_smallest) == ((slow,), True)


@given(st.integers(1, 200))
def test_a_profile_that_is_right_needs_one_question(count: int) -> None:
    units = TableUnits([1.0] * count, [1.0] * (count - 1) + [2.0])
    assert search(units).kept == (count - 1,)
    assert len(units.asked) == 1


def test_a_slowdown_that_is_everywhere_is_shown_by_one_unit() -> None:
    assert len(search(TableUnits([1.0] * 40, [1.1] * 40)).kept) == 1


@given(st.data(), st.integers(2, 24))
def test_units_that_are_slow_together_are_all_kept(data: st.DataObject, count: int) -> None:
    together = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=3))
    found = search(TableUnits([1.0] * count, [1.0] * count, together))
    assert (set(found.kept), found.is_smallest) == (together, True)


@given(st.data(), st.integers(1, 40), st.booleans())
def test_all_questions_and_the_one_of_the_files_keep_the_level(
    data: st.DataObject,
    count: int,
    is_open: bool,  # noqa: FBT001  # hypothesis gives it by name
) -> None:
    together = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    units = TableUnits([1.0] * count, [1.0] * count, together, is_open=is_open)
    search(units)
    of_files = levels_for(count, LEVEL).of(len(units.asked) + 1)
    assert sum(question.level for question in units.asked) + of_files <= LEVEL + 1e-12


def test_nothing_is_asked_twice() -> None:
    units = TableUnits([1.0] * 9, [1.0] * 9, {1, 7})
    search(units)
    assert len({question.units for question in units.asked}) == len(units.asked)


@pytest.mark.parametrize("is_open", [True, False])
def test_if_no_units_are_shown_to_be_slower_none_are_kept(is_open: bool) -> None:  # noqa: FBT001  # a parameter
    found = search(TableUnits([1.0] * 5, [1.0] * 5, is_open=is_open))
    assert (found.kept, found.is_smallest, found.shown_by) == ((), False, None)
    assert {step.shown for step in found.steps} == {
        StepAnswer.OPEN if is_open else StepAnswer.NOT_SLOWER
    }


def test_units_that_do_not_run_by_themselves_are_stepped_around() -> None:
    found = search(TableUnits([1.0] * 4, [3.0, 2.0, 2.0, 1.0], failing={0}))
    assert found.kept == ()
    assert found.steps[0].shown is StepAnswer.FAILED
    assert found.steps[0].reason == "there is no kernel for Tan by itself"


def test_the_step_that_showed_what_was_kept_is_known() -> None:
    found = search(TableUnits([1.0] * 6, [1.0] * 6, {2, 4}))
    step = found.shown_by
    assert step is not None
    assert (step.units, step.shown) == ((2, 4), StepAnswer.SLOWER)


def test_a_search_ends_with_its_time_and_says_so() -> None:
    now = iter(float(second) for second in range(1000))
    rule = ReduceRule(allowed=0.05, level=LEVEL, max_seconds=12.0)
    units = TableUnits([1.0] * 64, [1.0] * 64, {20, 40})
    found = find_smallest([0.0] * 64, units, rule, lambda: next(now))
    assert not found.is_smallest
    assert len(units.asked) < 12


def test_a_model_that_changes_ends_the_search() -> None:
    def judge(question: UnitQuestion) -> Metric:
        raise ChangedModelError(f"the model changed in question {question.number}")

    with pytest.raises(ChangedModelError):
        find_smallest([1.0, 0.0], judge, RULE)


def test_no_units_need_no_question() -> None:
    assert find_smallest([], TableUnits([], []), RULE, lambda: math.inf).steps == ()


NETWORK = """g (float[1,8,16,16] x) => (float[1,8] y) {
    a = Conv <pads = [1,1,1,1]> (x, w0)
    b = Sigmoid (a)
    c = CHANGED
    d = Conv <pads = [1,1,1,1]> (c, w1)
    u = GlobalAveragePool (d)
    y = Flatten (u)
}"""
PLACE = CasePlace(Case(1, 1), 1, 1, lambda _: None)


def network(changed: str) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {f"w{k}": random.standard_normal((8, 8, 3, 3)).astype(np.float32) for k in range(2)}
    return parse(NETWORK.replace("CHANGED", changed), 21, weights=weights)


@contextmanager
def opened(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[OpenPlans]:
    old, new = (Model.load(model, ProfileRequest(), Extensions()) for model in (before, after))
    with open_plans(prepare_pair(PairOf(old, new, Setup(), Setup())), PLACE) as plans:
        yield plans


@pytest.fixture(scope="module")
def plans() -> Iterator[OpenPlans]:
    with opened(network("Softplus (b)"), network("Elu (b)")) as made:
        yield made


def run_cut(cut: Cut) -> dict[str, np.ndarray]:
    """The outputs of what was cut out, on the inputs that it had in the whole."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(cut.path), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    feeds = {name: feed.array for name, feed in cut.feeds.items()}
    return dict(zip(names, session.run(names, feeds), strict=True))


def test_a_cut_out_part_computes_the_same_as_in_the_whole(plans: OpenPlans) -> None:
    whole = run_cut(plans.cut(plans.units).before)
    x = next(iter(plans.sides[0].rig.workload.feeds.values())).array
    model = network("Softplus (b)")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["y"], {"x": x})
    np.testing.assert_allclose(whole["y"], expected, rtol=1e-4)
    # The halves of the whole, one after the other.
    first, second = (plans.cut(units).before for units in (plans.units[:3], plans.units[3:]))
    np.testing.assert_allclose(run_cut(second)["y"], expected, rtol=1e-4)
    for name, array in run_cut(first).items():
        np.testing.assert_allclose(array, second.feeds[name].array, rtol=1e-4)


def test_only_what_changed_may_have_become_slower(plans: OpenPlans) -> None:
    for unit, longer in zip(plans.units, plans.longer_ns, strict=True):
        assert unit.is_changed or longer == 0.0
    assert [plans.names(unit) for unit in plans.units if unit.is_changed] == [
        (("Softplus",), ("Elu",))
    ]


def changed(plans: OpenPlans) -> list[int]:
    return [index for index, unit in enumerate(plans.units) if unit.is_changed]


@pytest.mark.parametrize("is_anonymous", [True, False])
@pytest.mark.parametrize("is_upgrade", [True, False])
def test_a_folder_runs_by_its_own_program(
    plans: OpenPlans,
    tmp_path: Path,
    is_anonymous: bool,  # noqa: FBT001  # a parameter
    is_upgrade: bool,  # noqa: FBT001  # likewise
) -> None:
    target = tmp_path / "reduced"
    cut = plans.cut(plans.units[index] for index in (0, *changed(plans)))
    found = make_reduction(is_upgrade=is_upgrade)
    with pair_files(cut, 1, is_anonymous=is_anonymous) as files:
        deliver(found, files, str(target), MachineFacts())
    names = ["README.md", "after.onnx", "before.onnx", "repro.py", "run.json", "run.py"]
    assert sorted(path.name for path in target.iterdir()) == names
    assert sorted(tmp_path.iterdir()) == [target]
    assert max(path.stat().st_size for path in target.glob("*.onnx")) < 100_000
    program = target / "repro.py"
    shortened = program.read_text(encoding="utf-8").replace("range(9)", "range(1)")
    program.write_text(shortened.replace("seconds=0.5", "seconds=0"), encoding="utf-8")
    other = [sys.executable] if is_upgrade else []
    done = subprocess.run(
        [sys.executable, str(program), *other],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    figures = r"before [\d.e-]+ ms, after [\d.e-]+ ms, ratio [\d.]+"
    assert re.fullmatch(figures, done.stdout.splitlines()[-1])


def test_an_archive_has_a_folder_of_its_name(plans: OpenPlans, tmp_path: Path) -> None:
    target = tmp_path / "slow.zip"
    cut = plans.cut(plans.units[index] for index in changed(plans))
    with pair_files(cut, 1, is_anonymous=False) as files:
        deliver(make_reduction(), files, str(target), MachineFacts())
    with zipfile.ZipFile(target) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"slow"}
        assert len(archive.namelist()) == 6
    assert list(tmp_path.iterdir()) == [target]


def test_weights_that_were_drawn_for_an_earlier_pair_go(plans: OpenPlans, tmp_path: Path) -> None:
    for name in ("before.weights", "after.weights", "notes.txt"):
        (tmp_path / name).write_bytes(b"of before")
    cut = plans.cut(plans.units[index] for index in changed(plans))
    with pair_files(cut, 1, is_anonymous=False) as files:
        deliver(make_reduction(), files, str(tmp_path), MachineFacts())
    assert not list(tmp_path.glob("*.weights"))
    assert (tmp_path / "notes.txt").read_bytes() == b"of before"


def test_drawn_weights_are_removed_after_they_ran(plans: OpenPlans) -> None:
    cut = plans.cut(plans.units)
    with pair_files(cut, 1, is_anonymous=False) as files:
        with files.drawn(cut) as drawn:
            assert (files.folder / "before.weights").exists()
            outputs = run_cut(drawn.before)
        assert outputs["y"].shape == (1, 8)
        assert not list(files.folder.glob("*.weights"))


def test_both_models_get_the_same_numbers_for_an_input_of_both(plans: OpenPlans) -> None:
    cut = plans.cut(plans.units[index] for index in changed(plans))
    with pair_files(cut, 1, is_anonymous=False) as files, files.drawn(cut) as drawn:
        before, after = (next(iter(side.feeds.values())) for side in (drawn.before, drawn.after))
    np.testing.assert_array_equal(before.array, after.array)


def test_the_options_of_a_session_are_kept(plans: OpenPlans) -> None:
    cut = plans.cut(plans.units[index] for index in changed(plans))
    options = {
        "session.intra_op.allow_spinning": "0",
        "provider": "cpu",
        "execution_mode": "parallel",
        "graph_optimization_level": "all",
    }
    cut = replace(cut, after=replace(cut.after, options=options))
    with pair_files(cut, 2, is_anonymous=False) as files:
        assert files.plan.config == {"session.intra_op.allow_spinning": "0"}
        assert files.plan.options["execution_mode"] == 1
        assert files.plan.options["graph_optimization_level"] == 0
        assert files.plan.cores == 2
