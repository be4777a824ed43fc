"""The models that a program ran, found among those of the project."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.init.records import ModelSearch, Project, Remark, inner_path
from pytest_modelperf.init.surveying import SUFFIX, Survey
from pytest_modelperf.init.used_sizes import UsedModel, use_sizes
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.tracing.launch import SessionRuns


def survey_used(survey: Survey, sessions: Sequence[SessionRuns]) -> Survey:
    """Return the survey with the models that the sessions ran, in place of those from a search.

    `survey` has no sizes yet. Models that cannot get a table are remarks, each with the reason.
    """
    project, search = survey.project, survey.search
    found: dict[str, list[SessionRuns]] = {}
    remarks: dict[Remark, None] = {}
    for session in sessions:
        path = _path_of(session, project, search)
        if isinstance(path, Remark):
            remarks[path] = None
        else:
            found.setdefault(path, []).append(session)
    used: dict[str, UsedModel] = {}
    for path, runs in found.items():
        sizes = _read(project.root / path, runs)
        if isinstance(sizes, UsedModel):
            used[path] = sizes
        else:
            remarks[Remark(path, sizes)] = None
    remarks |= dict.fromkeys(
        Remark(path, "the program did not load it") for path in search.models if path not in found
    )
    return replace(survey, used=dict(sorted(used.items())), unused=tuple(remarks))


def _read(path: Path, runs: Sequence[SessionRuns]) -> UsedModel | str:
    if not any(run.count for run in runs):
        return "the program loaded it, but ran no inference"
    try:
        file = open_model(path)
        used = use_sizes(declared_inputs(file.proto), runs, file.name)
    except ModelPerfError as error:
        return str(error)
    return used or "the shapes of its inputs are unknown: they were bound on a device"


def _path_of(session: SessionRuns, project: Project, search: ModelSearch) -> str | Remark:
    if session.model is None:
        return _path_of_bytes(session, project, search)
    for models in (search.models, [remark.path for remark in search.remarks]):
        for inner in models:
            if _is_same(project.root / inner, session.model):
                return inner if inner in search.models else _remark(inner, search)
    name = str(session.model)
    if not session.model.resolve().is_relative_to(project.root.resolve()):
        return Remark(name, "it is outside the project: copy it in, so that every checkout has it")
    inside = inner_path(session.model.resolve(), project.root.resolve())
    if not name.endswith(SUFFIX):
        return Remark(inside, f"its name does not end in {SUFFIX}")
    return Remark(inside, "it is in a folder that is not searched: name it to use it all the same")


def _remark(inner: str, search: ModelSearch) -> Remark:
    return next(remark for remark in search.remarks if remark.path == inner)


def _path_of_bytes(session: SessionRuns, project: Project, search: ModelSearch) -> str | Remark:
    for inner in search.models:
        path = project.root / inner
        if (
            path.stat().st_size == session.size
            and hashlib.sha256(path.read_bytes()).hexdigest() == session.sha256
        ):
            return inner
    size = format_bytes(session.size)
    return Remark(
        f"a model in memory, {size}", "no file of the project has these bytes: save them to one"
    )


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
