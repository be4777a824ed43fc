"""Tests of tables whose model is not an existing file: `pyproject.toml::encoder[b1-c1]`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import AbsentFileError, ModelPerfError
from pytest_modelperf.spec.declaring import spec_by_table
from pytest_modelperf.spec.sized_case import cases_of
from pytest_modelperf.testing.current_run import run_of
from pytest_modelperf.testing.items import OnnxItem, UnreadableItem
from pytest_modelperf.testing.names import ALL_CASES
from pytest_modelperf.testing.wording import in_table
from pytest_modelperf.text.escaping import printable


class TablesFile(pytest.File):
    """A pyproject.toml, whose tests are the cases of models that are made or fetched.

    A table with an absent file gets one failing test, so that the other models still run.
    """

    def __init__(self, *, absent: Collection[str], **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self.absent = absent

    @classmethod
    def from_parent(  # type: ignore[override]  # pytest's own
        cls,
        parent: pytest.Collector,
        *,
        path: Path,
        absent: Collection[str],
        **kwargs: Any,  # noqa: ANN401
    ) -> TablesFile:
        made: TablesFile = super().from_parent(parent, path=path, absent=absent, **kwargs)
        return made

    def collect(self) -> Iterator[pytest.Item]:
        run = run_of(self.config)
        if run is None:
            return
        root = run.settings.root
        for table, spec in run.settings.models.items():
            if table in self.absent:
                message = str(absent_file(table, root))
                yield UnreadableItem.from_parent(
                    self, name=_name(table, ALL_CASES), message=message
                )
            if spec.origin is None:
                continue
            own = replace(spec_by_table(spec, root / table, root), model=None)
            try:
                cases = cases_of(replace(own, baseline=own.baseline or table))
            except ModelPerfError as error:
                message = in_table(error, table, has_table=True)
                yield UnreadableItem.from_parent(
                    self, name=_name(table, ALL_CASES), message=message
                )
                continue
            for case in cases:
                yield TableItem.from_parent(
                    self, name=_name(table, case.name), case=case, table=table
                )


class TableItem(OnnxItem):
    """One case of a model that is made or fetched when the test is set up."""

    def __init__(self, *, table: str, **kwargs: Any) -> None:  # noqa: ANN401  # pytest's own
        super().__init__(**kwargs)
        self._table = table

    @property
    def table_path(self) -> str:
        return self._table


def absent_file(pattern: str, root: Path) -> AbsentFileError:
    """Make the error for a table that matches no file."""
    return AbsentFileError(
        f'[tool.modelperf.models."{printable(pattern)}"] names no file below '
        f"{printable(str(root))}: is the path right, and is the model there? A model that is made "
        "or fetched has make or url in its table."
    )


def _name(table: str, case: str) -> str:
    return printable(f"{table}[{case}]")
