"""Models from functions, kept with digests of their sources, and models that a runtime converts.

A kept model is used again while the files that its function read, the modules of the project and
the versions of the imported distributions stay the same.

A file in ONNX Runtime's own format has the graph that the runtime optimized during the conversion.
If the runtime does not optimize this graph further, it writes the same graph as ONNX, and runs the
same kernels.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from types import CodeType
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from pytest_modelperf.errors import MeasureError, ModelError, UsageError
from pytest_modelperf.files.opened import OpenedFiles, digest_of, distributions, module_files
from pytest_modelperf.files.store import locked, read_note, user_cache_folder, write_note
from pytest_modelperf.graph.model_file import external_files, open_model
from pytest_modelperf.obtaining.origins import ORT_SUFFIX, ModelOrigin, file_of
from pytest_modelperf.profiler.engines.callable import find_named
from pytest_modelperf.profiler.engines.source import BUILT_IN, DEFAULT_ENGINE
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import start_worker
from pytest_modelperf.profiler.worker.client import Worker
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

# With these options the runtime runs exactly the kernels of the file.
AS_CONVERTED: Mapping[str, str] = {"graph_optimization_level": "none"}
StartWorker: TypeAlias = Callable[[Setup, int], AbstractContextManager[Worker]]


def write_as_onnx(source: Path, folder: Path, start: StartWorker = start_worker) -> Path:
    """Write the model as ONNX into the folder, under its own name and the suffix of ONNX.

    Raises ModelError if the runtime cannot read it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The runtime recognizes its own format by the suffix.
    target = folder / f"{source.name}.onnx"
    name = printable(str(source))
    with start(Setup(), 1) as worker:
        worker.use_engine(BUILT_IN[DEFAULT_ENGINE], AS_CONVERTED)
        try:
            answer: Mapping[str, Any] | None = worker.ask(
                "plan",
                "as it was read",
                model=str(source.absolute()),
                folder=None,
                threads=1,
                options=dict(AS_CONVERTED),
                name="converted",
            )
        except MeasureError as error:
            raise ModelError(
                f"{name} cannot be read by ONNX Runtime: {error.message} Convert the model again "
                "with the installed version."
            ) from error
        if answer is None:
            raise ModelError(f"{name}: ONNX Runtime has no graph of it. Give the ONNX model.")
        written = Path(answer["path"])
        # The weights are in a file next to it, which the graph names.
        for file in written.parent.iterdir():
            shutil.copyfile(file, target if file == written else folder / file.name)
    return target


_NOTE = "made-from.json"
_KEY_LENGTH = 24
_OTHERS = frozenset({".git", "__pycache__", ".pytest_cache", ".modelperf"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_SYSTEM = ("/dev", "/etc", "/proc", "/sys")


class MadeFrom(Struct, frozen=True):
    """The sources of a kept model, and the session of pytest that made it."""

    model: str
    session: str
    python: str
    files: Mapping[str, str | None]
    distributions: Mapping[str, str]

    @property
    def is_current(self) -> bool:
        """Whether all sources are unchanged."""
        return (
            self.python == _python()
            and all(_version(name) == known for name, known in self.distributions.items())
            and all(digest_of(path) == known for path, known in self.files.items())
        )


class MadeModel(Struct, frozen=True):
    """The file of a model that a function made in this or an earlier session."""

    path: Path
    is_kept: bool


class Making(Struct, frozen=True, kw_only=True):
    """How models are made in a session of tests.

    `root` is the folder of the project, `folder` that of kept models. `session` is the name of the
    session, which its processes share. Without `uses_kept`, models of earlier sessions are made
    again.
    """

    root: Path
    session: str
    folder: Path = msgspec.field(default_factory=lambda: user_cache_folder() / "made")
    uses_kept: bool = True

    def make(self, origin: ModelOrigin, name: str) -> MadeModel:
        """Return the file of the model. `name` distinguishes models of the same function."""
        folder = (self.folder / self._key(origin, name)).absolute()
        # With the lock, the processes of a session make a model only once.
        with locked(folder, math.inf), self._importing():
            function = origin.function or _find(origin.name)
            kept = read_note(folder / _NOTE, MadeFrom)
            if kept is not None and self._may_use(kept, function):
                path = folder / kept.model
                if path.is_file() and kept.is_current:
                    return MadeModel(path, is_kept=kept.session != self.session)
            return self._make(function, origin, PurePath(name).stem, folder)

    def _may_use(self, kept: MadeFrom, function: Callable[[], object]) -> bool:
        return kept.session == self.session or (self.uses_kept and _is_plain(function))

    def _key(self, origin: ModelOrigin, name: str) -> str:
        named = [str(self.root), origin.name, name]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:_KEY_LENGTH]

    def _make(
        self, function: Callable[[], object], origin: ModelOrigin, name: str, folder: Path
    ) -> MadeModel:
        opened = OpenedFiles()
        opened.begin()
        try:
            value = function()
        finally:
            opened.end()
        files = self._files(opened, _code_file(function), value)
        digests = {path: digest_of(path) for path in sorted(files)}
        previous = read_note(folder / _NOTE, MadeFrom)
        # The folder is new because a worker of another session may still read the old one.
        target = Path(tempfile.mkdtemp(prefix="model-", dir=folder))
        made = _copied(file_of(value, f"{printable(str(origin))}()", target, name), target, name)
        note = MadeFrom(
            made.relative_to(folder).as_posix(), self.session, _python(), digests, distributions()
        )
        write_note(folder / _NOTE, note)
        if previous is not None:
            shutil.rmtree((folder / previous.model).parent, ignore_errors=True)
        return MadeModel(made, is_kept=False)

    def _files(self, opened: OpenedFiles, own: str | None, value: object) -> set[str]:
        returned = [os.path.abspath(value)] if isinstance(value, str | os.PathLike) else []  # noqa: PTH100
        read = (*module_files(), *opened.paths, *returned)
        return {*filter(self._may_matter, read), *([] if own is None else [own])}

    def _may_matter(self, path: str) -> bool:
        parts = set(PurePath(path).parts)
        if parts & (_PACKAGES | _OTHERS) or path.startswith(_SYSTEM):
            return False
        prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, str(self.folder)}
        if not _is_below(path, str(self.root)):
            prefixes.add(tempfile.gettempdir())
        inner = [each for each in prefixes if not _is_below(str(self.root), each)]
        return os.path.isfile(path) and not any(_is_below(path, each) for each in inner)  # noqa: PTH113

    @contextmanager
    def _importing(self) -> Iterator[None]:
        added = str(self.root)
        sys.path.insert(0, added)
        try:
            yield
        finally:
            with suppress(ValueError):
                sys.path.remove(added)


def _find(name: str) -> Callable[[], object]:
    shown = printable(name)
    found: object = find_named(
        name,
        lambda module: UsageError(
            f"there is no module {printable(module)} for {shown}: it is looked for in the "
            "folder of the project, and then on sys.path."
        ),
        lambda part, owner: UsageError(
            f"there is no {printable(part)} in {shown.partition(':')[0]}, for {shown}."
            f"{suggestion(part, [each for each in dir(owner) if not each.startswith('_')])}"
        ),
    )
    if not callable(found):
        raise UsageError(f"{shown} is not a function: name one that returns a model.")
    function: Callable[[], object] = found
    return function


def _code(function: Callable[[], object]) -> CodeType | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _code_file(function: Callable[[], object]) -> str | None:
    code = _code(function)
    return None if code is None else os.path.abspath(code.co_filename)  # noqa: PTH100


def _is_plain(function: Callable[[], object]) -> bool:
    """Whether a function depends only on its code. A closure holds other values, too."""
    return _code(function) is not None and not getattr(function, "__closure__", None)


def _copied(path: Path, target: Path, name: str) -> Path:
    """Return the model in the folder with its external data. Both are copied if needed."""
    if path.parent == target:
        return path
    if path.suffix == ORT_SUFFIX:
        # This format has no external data.
        return Path(shutil.copyfile(path, target / f"{name}{ORT_SUFFIX}"))
    for place, source in external_files(open_model(path)).items():
        copy = target / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    return Path(shutil.copyfile(path, target / f"{name}.onnx"))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _python() -> str:
    return f"{sys.implementation.cache_tag} {platform.python_version()} {platform.platform()}"


def _is_below(path: str, folder: str) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)
