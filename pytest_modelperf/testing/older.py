"""Older versions: of a model, as `--modelperf-against` names it, and of the recorded engine.

An upgrade of the engine is judged by a baseline's twin on the recorded and installed versions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing.by_running import (
    Details,
    compare_case,
    compare_pair_outputs,
    with_outputs,
)
from pytest_modelperf.comparing.judged_case import JudgedCase, PairedCase
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS, OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.settled import find_missing
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.comparing.since_recorded import (
    EngineChange,
    change_of_engine,
    find_engine_change,
)
from pytest_modelperf.errors import BaselineError, ModelPerfError, UsageError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.profiler.prepare import Pair, prepare
from pytest_modelperf.profiler.worker.gateway import LOCAL
from pytest_modelperf.revisions.commits import (
    RefOption,
    UnknownCommitError,
    find_commit,
    has_commit,
    submodules,
    taken_from_git,
)
from pytest_modelperf.spec.run_definitions import AGAINST, JUDGE_UPGRADES
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

_OPTION = RefOption(AGAINST.flag, f"{AGAINST.flag} old.onnx")


@contextmanager
def older_version(text: str, model: Path, root: Path) -> Iterator[Path]:
    """Yield the file of the older version of a model, given by a path or a git ref.

    The file of a git ref is temporary. If `text` is a file, it is the older version of any model.
    In a folder, the older version has the path that the model has in `root`, or else its name. A
    path takes precedence over a ref of the same name.
    """
    named = named_path(text, root)
    if named is not None:
        yield file_named(named, text, model, root)
        return
    commit = find_commit(text, model.absolute().parent, _OPTION)
    with taken_from_git(commit, model) as path:
        yield path


def check_against(text: str, root: Path) -> None:
    """Raise UsageError at the start of a run if `text` is neither a path nor a commit.

    It may also be a commit of a submodule, because a submodule may contain the model.
    """
    if named_path(text, root) is not None:
        return
    try:
        find_commit(text, root, _OPTION)
    except UnknownCommitError:
        if not any(has_commit(text, folder, _OPTION) for folder in submodules(root, _OPTION)):
            raise


# -- by its path: a file, or a folder that contains it


# Folders of copies and packages, which do not contain the user's own models.
_COPIES = frozenset({"build", "dist", "node_modules", "venv", "__pycache__"})


def named_path(text: str, root: Path) -> Path | None:
    """Return the path `text`, relative to the current folder or to `root`, or None if absent."""
    if not text.strip():
        raise UsageError(f"{AGAINST.flag} takes a path or a git ref, such as HEAD~1 or old.onnx.")
    given = Path(text).expanduser() if text.startswith("~/") else Path(text)
    # Unlike `Path.exists`, this raises no error for a text that cannot be a path.
    found = (path for path in (given, root / given) if os.path.exists(path))  # noqa: PTH110
    return next((path.absolute() for path in found), None)


def file_named(named: Path, text: str, model: Path, root: Path) -> Path:
    path = _file_in_folder(named, text, model, root) if named.is_dir() else named
    if _place(path) == _place(model):
        raise UsageError(
            f"{AGAINST.flag} {printable(text)} names the model {printable(str(model))} itself. "
            "Give an older version of it: another file, or a git ref such as HEAD~1."
        )
    return path


def _file_in_folder(folder: Path, text: str, model: Path, root: Path) -> Path:
    place, top = _place(model), root.resolve()
    wanted = folder / model.name
    if place.is_relative_to(top):
        wanted = folder / place.relative_to(top)
        if wanted.is_file():
            return wanted
    by_name = folder / model.name
    if not by_name.is_file():
        near = sorted(p for pattern in ("*.onnx", "*/*.onnx") for p in folder.glob(pattern))[:5]
        hint = f" There are: {', '.join(printable(str(path)) for path in near)}." if near else ""
        tried = dict.fromkeys((str(wanted.relative_to(folder)), model.name))
        raise UsageError(
            f"{AGAINST.flag} names the folder {printable(text)}, which does not contain "
            f"{' or '.join(map(printable, tried))}.{hint} "
            f"Put the older version there, or give its path.{_ref_hint(text)}"
        )
    for other in _namesakes(model.name, top, folder.resolve()):
        if other != place:
            raise UsageError(
                f"{printable(str(by_name))} may be the older version of "
                f"{printable(str(model))} or of {printable(str(other))}. "
                f"Put it at {printable(str(wanted))}, or give {AGAINST.flag} the path of a file."
            )
    return by_name


def _ref_hint(text: str) -> str:
    if "/" in text or text.startswith("."):
        return ""
    return f" If you mean the branch of that name, type refs/heads/{printable(text)}."


def _namesakes(name: str, top: Path, but: Path) -> Iterator[Path]:
    """Yield the files of that name below `top`, except in `but` and in folders of tools."""
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _COPIES
            and here / each != but
            and not (here / each / "pyvenv.cfg").exists()
        ]
        if name in files:
            yield here / name


def _place(path: Path) -> Path:
    """Resolve the links in the folder of a file, but not the file itself."""
    return path.parent.resolve() / path.name


def engine_change_of(bound: BoundCheck, stored: Baseline | None) -> EngineChange | None:
    """Return the change of the engine since the case was recorded, if any is known.

    If an option names the engine of the baseline, the user knows of the change, so it is not
    returned. The engine behind a gateway is unknown.
    """
    context = bound.context
    is_named = context.baseline_python is not None or bool(context.baseline_requirements)
    if stored is None or context.is_static or context.against is not None or is_named:
        return None
    if bound.check.setup.spec != LOCAL:
        return None
    case = stored.model.case(bound.case.id)
    if case is None or case.engine != bound.check.setup.engine.name:
        return None
    if find_missing(bound.case, case, bound.model) is not None:
        return None
    return find_engine_change(case)


def judge_upgrade(bound: BoundCheck, stored: Baseline, change: EngineChange) -> CaseResult:
    """Judge an upgrade. If an environment or a run fails, the case has failed."""
    try:
        compared = _with_outputs(_compare(bound, stored, change), bound, change)
    except ModelPerfError as error:
        failure = error.worded(bound.check.setup.wording)
        compared = JudgedCase(CaseComparison(bound.case, (), (), failure=failure))
    return CaseResult(compared.comparison, compared.profile or bound.counted)


def _compare(bound: BoundCheck, stored: Baseline, change: EngineChange) -> JudgedCase:
    case = stored.model.case(bound.case.id)
    refusal = stored.model.twin_refusal(bound.case.id)
    if refusal is None:
        now = Side(bound.check.graph, bound.check.setup)
        key, extensions = bound.machine.key, bound.context.extensions
        with baseline_side(stored, key, now, bound.check.request, extensions) as before:
            return _compare_engines(bound, before.source, change)
    if case is not None and case.model_sha256 == bound.file.sha256(bound.place.tell):
        # If the model is unchanged, it is used in place of a twin.
        return _compare_engines(bound, bound.check.graph, change)
    reason = f"the model changed, and the recorded one cannot be run: {refusal}"
    open_case = CaseComparison(bound.case, (), (), (reason,), outcome=Verdict.INCONCLUSIVE)
    return JudgedCase(open_case)


def _compare_engines(bound: BoundCheck, source: ModelSource, change: EngineChange) -> JudgedCase:
    setup = bound.check.setup
    before = Side(source, bound.setup_with([change.recorded_requirement]))
    model = prepare(bound.bind_older(source))
    pair = Pair(model, model, before.setup, setup)
    gate = bound.check.gate
    # `_with_outputs` compares the outputs of the model itself.
    gate = replace(gate, tolerances=gate.tolerances.without(OUTPUTS))
    return compare_case(PairedCase(pair, before, gate, bound.place), Details.WHEN_WORSE)


def _with_outputs(found: JudgedCase, bound: BoundCheck, change: EngineChange) -> JudgedCase:
    """Add the outputs of the current model on both versions, judged only if there is a limit."""
    comparison = found.comparison
    if comparison.failure is not None:
        return found
    limit = bound.check.gate.tolerances.outputs
    before = bound.setup_with([change.recorded_requirement])
    model = prepare(bound.model)
    pair = Pair(model, model, before, bound.check.setup)
    allowed = DEFAULT_OUTPUTS if limit is None else limit
    compared = compare_pair_outputs(pair, bound.place, allowed)
    if limit is None and not compared.outputs:
        return found
    comparison = with_outputs(comparison, compared, is_judged=limit is not None)
    if limit is not None and compared.metric.verdict is Verdict.REGRESSED:
        # Wrong outputs are a result even if nothing could be timed.
        comparison = replace(comparison, outcome=None)
    return replace(found, comparison=comparison)


# -- the engines that changed since the baselines of a project were recorded


def find_engine_changes(store: BaselineStore) -> Mapping[EngineChange, int]:
    found: Counter[EngineChange] = Counter()
    try:
        names = store.names()
    except BaselineError:
        # Each check of a model reports this error.
        return {}
    for name in names:
        try:
            stored = store.read(name, ())
        except BaselineError:
            continue
        if stored is not None:
            recorded = {(case.engine, case.engine_version) for case in stored.model.cases}
            changes = {change_of_engine(engine, version) for engine, version in recorded}
            found.update(change for change in changes if change is not None)
    return found


def describe_engine_changes(changes: Mapping[EngineChange, int], *, are_judged: bool) -> list[str]:
    """Return a line for each change: what was recorded with which version, and how to judge it."""
    return [
        _describe(change, count, is_judged=are_judged) for change, count in sorted(changes.items())
    ]


def _describe(change: EngineChange, count: int, *, is_judged: bool) -> str:
    baselines = count_of(count, "baseline")
    recorded = printable(f"{change.engine} {change.recorded}")
    now = "the upgrade is judged" if is_judged else f"{JUDGE_UPGRADES.flag} judges the upgrade"
    return (
        f"modelperf: {baselines} recorded with {recorded}, installed is "
        f"{printable(change.installed)}: {now}"
    )
