"""The table `[tool.modelperf]` of a `pyproject.toml`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import shown

PYPROJECT = "pyproject.toml"
_TABLE = "modelperf"
# Far larger than any real pyproject.toml.
_MAX_TOML_BYTES = 16 << 20


def read_table(pyproject: Path) -> Mapping[str, object] | None:
    """Return the content of `[tool.modelperf]`, or None without the table or the file."""
    tool = read_toml(pyproject).get("tool")
    table = tool.get(_TABLE) if isinstance(tool, dict) else None
    if table is None or isinstance(table, dict):
        return table
    name = printable(str(pyproject))
    raise UsageError(f"{name}: tool.{_TABLE} takes a table, not {shown(table)}.")


def read_toml(path: Path) -> Mapping[str, object]:
    """Return the content of a TOML file, which is empty if there is no file."""
    # Imported here: most pytest runs do not read this table.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    name = printable(str(path))
    try:
        size = require_file(path)
        if size > _MAX_TOML_BYTES:
            raise UsageError(
                f"{name} is {format_bytes(size)}, too large for a pyproject.toml. Restore it."
            )
        content: Mapping[str, object] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"{name} is not valid TOML: {printable(str(error))}.") from error
    except RecursionError as error:
        raise UsageError(
            f"{name} has values that are nested too deeply: make it flatter."
        ) from error
    return content
