"""A project looked over: its models, which of them have tables, and sizes for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.files.settings_table import PYPROJECT, read_table
from pytest_modelperf.init.records import ModelSearch, Project, Remark
from pytest_modelperf.init.searching import Tell, find_models
from pytest_modelperf.init.used_sizes import UsedModel, used_lines
from pytest_modelperf.sizing.pasted import GUESSED, reason_lines, table_lines
from pytest_modelperf.sizing.records import FoundSizes
from pytest_modelperf.spec.model_tables import MODELS, ModelTables, read_models
from pytest_modelperf.spec.run_definitions import BASELINE_DIR
from pytest_modelperf.spec.setting import PREFIX
from pytest_modelperf.text.escaping import printable

FindSizes = Callable[[Path], FoundSizes]


class NamedOrigin(Struct, frozen=True):
    """A model that the user names by its origin: the name of its table, and its file by now.

    `line` is the key of the table that says where the model comes from.
    """

    name: str
    line: str
    path: Path


class Survey(Struct, frozen=True, kw_only=True):
    """The models of a project.

    `declared` have a table already. `sizes` are those of the models that get one. `unsized` are
    those whose sizes were not found, so that only the user can write their tables.

    `origins` have the first line of the tables of models that are made or fetched.

    `program` is a command that was run for its models, and empty without one: then `used` has what
    it used of them, and `unused` the models that cannot get a table by it.
    """

    project: Project
    baselines: Path
    search: ModelSearch
    declared: tuple[str, ...] = ()
    sizes: Mapping[str, FoundSizes] = field(default_factory=dict)
    unsized: tuple[Remark, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    used: Mapping[str, UsedModel] = field(default_factory=dict)
    unused: tuple[Remark, ...] = ()

    @property
    def tables(self) -> Mapping[str, str]:
        """The lines of each new table as TOML."""
        sized = {
            path: self.origins.get(path, "") + _lines(found) for path, found in self.sizes.items()
        }
        used = {
            path: used_lines(found, self.program)
            for path, found in self.used.items()
            if path not in self.declared
        }
        return {**sized, **used}


def survey_project(
    project: Project,
    places: Sequence[Path],
    find_sizes: FindSizes | None,
    tell: Tell = lambda _: None,
    origins: Sequence[NamedOrigin] = (),
) -> Survey:
    """The survey of these files, folders and origins; UsageError for settings that mean nothing.

    Without `find_sizes` no sizes are found.
    """
    pyproject = project.root / PYPROJECT
    table = read_table(pyproject) or {}
    tables = read_models(table.get(MODELS, {}), f"{PYPROJECT}, [tool.{PREFIX}.{MODELS}")
    baselines = project.root / str(table.get(BASELINE_DIR.table_key, BASELINE_DIR.default))
    search = find_models(project, places, baselines, tell)
    files = {each.name: each.path for each in origins}
    search = replace(search, models=(*files, *search.models))
    declared = tuple(path for path in search.models if _is_declared(path, tables))
    sizes: dict[str, FoundSizes] = {}
    unsized: list[Remark] = []
    new = [path for path in search.models if path not in set(declared)]
    for number, path in enumerate(new, 1):
        if find_sizes is None:
            break
        tell(f"finding sizes, {number} of {len(new)}: {printable(path)}")
        try:
            found = find_sizes(files.get(path, project.root / path))
        except ModelPerfError as error:
            unsized.append(Remark(path, str(error)))
            continue
        if found.error is None:
            sizes[path] = found
        else:
            unsized.append(Remark(path, found.error))
    return Survey(
        project=project,
        baselines=baselines,
        search=search,
        declared=declared,
        sizes=sizes,
        unsized=tuple(unsized),
        origins={each.name: f"{each.line}\n" for each in origins},
    )


def _is_declared(path: str, tables: ModelTables) -> bool:
    return tables.own(path) is not None or bool(tables.globs_of(path))


def _lines(found: FoundSizes) -> str:
    """The keys of a table, below the reason for each size."""
    keys = list(table_lines(found))
    reasons = [f"# {printable(line)}" for line in reason_lines(found)] if keys else []
    if found.guessed:
        reasons.append(f"# {GUESSED}")
    return "".join(f"{line}\n" for line in [*reasons, *keys])
