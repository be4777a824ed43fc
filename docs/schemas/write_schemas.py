"""Writes what is made of types and definitions.

That is: the JSON Schemas in this folder, the tables of their keys in docs/json.md and
docs/baseline-files.md, the tables of settings in docs/configuration.md, the commands in
docs/commands.md, the hooks in docs/extending.md, and the types of arguments in the package.

python docs/schemas/write_schemas.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import commands_page
import hooks_page
import json_page
import msgspec
import settings_page
import typed_words
from meanings import key_meanings

from pytest_modelperf.baselines.document import MachineBaselineFile, ModelBaselineFile
from pytest_modelperf.baselines.overview import BASELINE_DIFF, BASELINE_LIST
from pytest_modelperf.baselines.program import STORED_PROGRAM
from pytest_modelperf.bisect.records import BISECT
from pytest_modelperf.comparing.records import COMPARISON
from pytest_modelperf.environments.records import CACHE_CONTENT
from pytest_modelperf.history.records import HISTORY, HistoryLine
from pytest_modelperf.profiler.doctor.records import CHECKUPS
from pytest_modelperf.profiler.records import PROFILE
from pytest_modelperf.profiles.records import NAMED, PROFILE_LIST, SIDE_BY_SIDE, WORK_AND_TIME
from pytest_modelperf.reducing.records import REDUCTION
from pytest_modelperf.roofline.records import ROOFLINE
from pytest_modelperf.sharing.records import SHARE
from pytest_modelperf.spec.sources import tool_schema
from pytest_modelperf.sweep.records import SWEEP
from pytest_modelperf.testing.outcomes import RUN
from pytest_modelperf.tracing.totals import TRACE_TOTALS
from pytest_modelperf.tuning.records import TUNING
from pytest_modelperf.whatif.records import WHATIF

HERE = Path(__file__).parent
TABLE_SCHEMA = HERE / "tool-modelperf.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# The type of each published document, by the name of its schema.
DOCUMENTS: Mapping[str, type[msgspec.Struct]] = {
    "baseline-machine": MachineBaselineFile,
    "baseline-model": ModelBaselineFile,
    "baseline-program": STORED_PROGRAM.json_type,
    "baselines-diff": BASELINE_DIFF.json_type,
    "baselines-list": BASELINE_LIST.json_type,
    "bisect": BISECT.json_type,
    "compare": COMPARISON.json_type,
    "doctor": CHECKUPS.json_type,
    "env": CACHE_CONTENT.json_type,
    "history": HISTORY.json_type,
    "history-line": HistoryLine,
    "kept-profile": NAMED.json_type,
    "profile": PROFILE.json_type,
    "profiles-compare": SIDE_BY_SIDE.json_type,
    "profiles-compare-flops": WORK_AND_TIME.json_type,
    "profiles-list": PROFILE_LIST.json_type,
    "reduce": REDUCTION.json_type,
    "roofline": ROOFLINE.json_type,
    "run": RUN.json_type,
    "share": SHARE.json_type,
    "sweep": SWEEP.json_type,
    "trace": TRACE_TOTALS.json_type,
    "tune": TUNING.json_type,
    "whatif": WHATIF.json_type,
}


def document_schema(document: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the JSON Schema of a document, with what its keys mean."""
    schema: dict[str, Any] = _cleaned(msgspec.json.schema(document))
    for title, record in schema["$defs"].items():
        for key, meaning in key_meanings(title).items():
            if key in record.get("properties", {}):
                record["properties"][key]["description"] = meaning
    return {"$schema": DIALECT, **schema}


def document_schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON Schema of each document by its name."""
    return {name: document_schema(each) for name, each in DOCUMENTS.items()}


# The pages with blocks that are made of the code, and what writes these blocks.
PAGES: Mapping[Path, Callable[[str], str]] = {
    settings_page.PAGE: settings_page.with_tables,
    commands_page.PAGE: commands_page.with_commands,
    hooks_page.PAGE: hooks_page.with_hooks,
    **{page: json_page.with_keys(page, document_schemas) for page in json_page.BLOCKS},
}


def main() -> None:
    for name, document in DOCUMENTS.items():
        schema_path(name).write_text(schema_text(document), encoding="utf-8")
    TABLE_SCHEMA.write_text(table_schema_text(), encoding="utf-8")
    typed_words.MODULE.write_text(typed_words.module_text(), encoding="utf-8")
    for page, written in PAGES.items():
        page.write_text(written(page.read_text("utf-8")), encoding="utf-8")


def table_schema_text() -> str:
    """The schema of the table of settings, which no type of ours has."""
    return json.dumps(tool_schema(), indent=2) + "\n"


def schema_path(name: str) -> Path:
    return HERE / f"{name}.json"


def schema_text(document: type[msgspec.Struct]) -> str:
    return json.dumps(document_schema(document), indent=2, ensure_ascii=False) + "\n"


def _cleaned(part: Any) -> Any:  # noqa: ANN401  # any part of a schema
    """With the descriptions that Python 3.13 makes of docstrings, which have no indentation."""
    if isinstance(part, list):
        return [_cleaned(each) for each in part]
    if not isinstance(part, dict):
        return part
    cleaned = {key: _cleaned(value) for key, value in part.items()}
    if isinstance(cleaned.get("description"), str):
        cleaned["description"] = cleandoc(cleaned["description"])
    return cleaned


if __name__ == "__main__":
    main()
