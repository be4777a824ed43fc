"""A slower model does not pass because the files of its baseline were edited.

The model now takes 15 % longer than the recorded one, with the same MACs and parameters. Each edit
takes something from the baseline of the slower model, or takes something away. Only one leads to a
green run under strict: all files as if the slower model had been recorded, which a review sees.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from msgspec import Struct

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.store import MODEL_FILE, TWIN_FILE, BaselineStore
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.checkout import ROOT
from tests.support.installed import install
from tests.support.known import known
from tests.support.project import read_json
from tests.support.recordings import record_baseline
from tests.support.simulated import simulate
from tests.support.small_models import ones, parse

pytestmark = pytest.mark.slow

CASE = "b4-c1"
WIDTH = 32
# The engine of these tests takes 100 µs for a product, and 10 µs for anything else.
PRODUCTS, ADDED = 13, 22
STRICT = (
    "--modelperf",
    "--modelperf-engine=planned",
    "--modelperf-max-seconds=30",
    "--modelperf-strict",
    "--modelperf-json=run.json",
)


def stack(added: int = 0, seed: float = 1.0) -> onnx.ModelProto:
    """Products, each with an activation, and more activations after them."""
    weights = {f"w{n}": (seed + n) / WIDTH * ones(WIDTH, WIDTH) for n in range(PRODUCTS)}
    lines, last = [], "x"
    for n in range(PRODUCTS):
        lines.append(f"m{n} = MatMul ({last}, w{n}) a{n} = Relu (m{n})")
        last = f"a{n}"
    for n in range(added):
        lines.append(f"s{n} = Softmax ({last})")
        last = f"s{n}"
    lines.append(f"y = Relu ({last})")
    graph = f"g (float[4,{WIDTH}] x) => (float[4,{WIDTH}] y) {{ {' '.join(lines)} }}"
    return parse(graph, weights=weights)


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The baselines of both models, in the folders `old/m` and `new/m`."""
    root = tmp_path_factory.mktemp("baselines")
    engine = EngineModule("planned", "tests.support.planned")
    setup = Setup(engine=engine, policy=SamplingPolicy(max_seconds=30.0))
    for name, model in (("old", stack()), ("new", stack(ADDED))):
        path = root / name / "m.onnx"
        path.parent.mkdir()
        path.write_bytes(model.SerializeToString())
        recording = record_baseline("m", path, ProfileRequest(), setup, dt.date(2026, 1, 31))
        BaselineStore(path.parent).apply(plan_update(None, recording))
    return root


@pytest.fixture
def checked_out(
    run: pytest.Pytester,
    baselines: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> pytest.Pytester:
    """A project with the baseline of the old model."""
    run.makeconftest("from tests.support.faulty_plugin import modelperf_register_engines")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    simulate(monkeypatch)
    install(monkeypatch, tmp_path_factory.mktemp("packages"), "planned", "1")
    shutil.copytree(baselines / "old" / "m", run.path / "baselines" / "m")
    return run


class Files(Struct):
    """The files of one baseline that is edited, and those of the slower model to take from."""

    folder: Path
    other: Path
    model: dict[str, Any]
    machine: dict[str, Any] | None
    slower: Mapping[str, Any]
    slower_machine: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, other: Path) -> Files:
        models = [dict(read_json(each / MODEL_FILE)) for each in (folder, other)]
        machines = [dict(read_json(_machine_file(each))) for each in (folder, other)]
        return cls(folder, other, models[0], machines[0], models[1], machines[1])

    def write(self) -> None:
        (self.folder / MODEL_FILE).write_text(json.dumps(self.model))
        path = _machine_file(self.folder)
        if self.machine is None:
            path.unlink()
        else:
            path.write_text(json.dumps(self.machine))

    @property
    def case(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model["cases"][CASE]
        return found

    @property
    def slower_case(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.slower["cases"][CASE]
        return found

    @property
    def times(self) -> dict[str, Any]:
        found: dict[str, Any] = known(self.machine)["cases"][CASE]
        return found


def _machine_file(folder: Path) -> Path:
    (path,) = (path for path in folder.glob("*.json") if path.name != MODEL_FILE)
    return path


Edit = Callable[[Files], None]


def copies(*keys: str) -> Edit:
    """Take fields of the case from the baseline of the slower model."""

    def edit(files: Files) -> None:
        files.case.update({key: files.slower_case[key] for key in keys})

    return edit


def says(key: str, value: object) -> Edit:
    """Give a field of the case a value."""
    return lambda files: files.case.update({key: value})


def _drop_machine(files: Files) -> None:
    files.machine = None


def _take_machine(files: Files) -> None:
    files.machine = dict(files.slower_machine)


def _take_digest_of_times(files: Files) -> None:
    files.times["model_sha256"] = files.slower_case["model_sha256"]


def _scale(files: Files) -> None:
    for process in files.times["processes"]:
        process["times_ns"] = [[2 * ns for ns in made] for made in process["times_ns"]]


def _drop_twin(files: Files) -> None:
    files.model["twin"] = None


def _drop_twin_file(files: Files) -> None:
    (files.folder / TWIN_FILE).unlink()


def _take_twin_file(files: Files) -> None:
    shutil.copy(files.other / TWIN_FILE, files.folder / TWIN_FILE)


def _take_twin(files: Files) -> None:
    """The file, with its digest and its size."""
    _take_twin_file(files)
    own = files.model["twin"]
    files.model["twin"] = {**files.slower["twin"], "model_sha256": own["model_sha256"]}


def _take_digest_of_twin(files: Files) -> None:
    files.model["twin"]["model_sha256"] = files.slower["twin"]["model_sha256"]


def _take_model(files: Files) -> None:
    files.model["model"] = files.slower["model"]


ZEROED = says("model_sha256", "0" * 64)
NO_FIDELITY = says("fidelity", None)
NO_ENGINE = says("engine", None)
NO_TWIN_MADE = says(
    "fidelity",
    {
        "has_same_plan": None,
        "interval": None,
        "is_trusted": False,
        "ratio": None,
        "reason": "no twin could be made",
        "rounds": 0,
    },
)
DOUBTED = says(
    "fidelity",
    {
        "has_same_plan": False,
        "interval": [1.04, 1.06],
        "is_trusted": False,
        "ratio": 1.05,
        "reason": "the twin runs otherwise",
        "rounds": 9,
    },
)
# The fields that change with a plan.
WORK = ("structure", "static", "layer_types", "observed")
EDITS: Mapping[str, tuple[Edit, ...]] = {
    # The fields of a case, each alone.
    "nothing": (),
    "the plan": (copies("plan"),),
    "no plan": (says("plan", None),),
    "the structure": (copies("structure"),),
    "the counts": (copies("static", "layer_types"),),
    "the digest": (copies("model_sha256"),),
    "the digest zeroed": (ZEROED,),
    "no digest": (says("model_sha256", None),),
    "no fidelity": (NO_FIDELITY,),
    "a twin in doubt": (DOUBTED,),
    "no twin was made": (NO_TWIN_MADE,),
    "no engine": (NO_ENGINE,),
    "other options": (says("options", {"whole": "yes"}),),
    # The twin and the times, each alone.
    "no twin": (_drop_twin,),
    "no file of the twin": (_drop_twin_file,),
    "another file of the twin": (_take_twin_file,),
    "another twin": (_take_twin,),
    "another digest of the twin": (_take_digest_of_twin,),
    "no times": (_drop_machine,),
    "other times": (_take_machine,),
    "longer times": (_scale,),
    # Some of them together.
    "the plan, with the structure": (copies("plan", "structure"),),
    "the plan, with the counts": (copies("plan", "static", "layer_types"),),
    "the plan, with all that goes with it": (copies("plan", *WORK),),
    "the plan, and the digest zeroed": (copies("plan", *WORK), ZEROED),
    "the plan, and no twin": (copies("plan", *WORK), _drop_twin),
    "the plan, and no fidelity": (copies("plan", *WORK), NO_FIDELITY),
    "the digest, with the structure": (copies("model_sha256", "structure"),),
    "the digest, with all that goes with it": (copies("model_sha256", *WORK),),
    "the digests of case and twin": (copies("model_sha256", *WORK), _take_digest_of_twin),
    "the digests of case and times": (
        copies("model_sha256", *WORK),
        _take_digest_of_times,
        _take_model,
    ),
    "the digest, and no twin": (copies("model_sha256", *WORK), _drop_twin),
    "the digest, and no fidelity": (copies("model_sha256", *WORK), NO_FIDELITY),
    "no times, and the digest zeroed": (_drop_machine, ZEROED),
    "no times, and no fidelity": (_drop_machine, NO_FIDELITY),
    "no times, and no twin": (_drop_machine, _drop_twin),
    "no times, and no engine": (_drop_machine, NO_ENGINE),
    "no times, no engine, and no fidelity": (_drop_machine, NO_ENGINE, NO_FIDELITY),
    "longer times, and no twin": (_scale, _drop_twin),
    "longer times, and a twin in doubt": (_scale, DOUBTED),
    "another twin, with the structure": (_take_twin, copies("structure")),
    "another twin, with the digest": (_take_twin, copies("model_sha256"), _take_digest_of_twin),
    "another twin, and the digests zeroed": (_take_twin, copies(*WORK), ZEROED),
}
RECORDED_AGAIN: tuple[Edit, ...] = (
    copies("model_sha256", "plan", *WORK),
    _take_twin,
    _take_digest_of_twin,
    _take_machine,
    _take_model,
)


def edit(run: pytest.Pytester, baselines: Path, edits: tuple[Edit, ...]) -> None:
    files = Files.read(run.path / "baselines" / "m", baselines / "new" / "m")
    for each in edits:
        each(files)
    files.write()


def check(run: pytest.Pytester, model: onnx.ModelProto) -> pytest.RunResult:
    (run.path / "m.onnx").write_bytes(model.SerializeToString())
    return run.runpytest_inprocess(*STRICT, "m.onnx")


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_no_edit_makes_a_slower_model_green(
    checked_out: pytest.Pytester, baselines: Path, edits: tuple[Edit, ...]
) -> None:
    edit(checked_out, baselines, edits)
    check(checked_out, stack(ADDED)).assert_outcomes(failed=1)


def test_an_edit_equal_to_recording_the_slower_model_passes(
    checked_out: pytest.Pytester, baselines: Path
) -> None:
    edit(checked_out, baselines, RECORDED_AGAIN)
    check(checked_out, stack(ADDED)).assert_outcomes(passed=1)


def test_a_retrained_model_passes_by_the_plan_that_its_twin_vouches_for(
    checked_out: pytest.Pytester,
) -> None:
    check(checked_out, stack(seed=2.0)).assert_outcomes(passed=1)
    (case,) = read_json(checked_out.path / "run.json")["cases"]
    assert (case["verdict"], case["how"]) == ("passed", "plan")
