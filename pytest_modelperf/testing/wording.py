"""The names of settings in errors and advice: arguments in Python, or keys of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pytest_modelperf.errors import ModelPerfError, Wording
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES, DIMS, INPUTS, STATE
from pytest_modelperf.spec.run_definitions import (
    BASELINE_PYTHON,
    ENGINE_OPTION,
    JSON,
    MAX_SECONDS,
    STATIC_ONLY,
    TIMEOUT,
    TOLERANCE,
)
from pytest_modelperf.text.escaping import printable, printable_lines, quoted_text, toml_key

if TYPE_CHECKING:
    from pytest_modelperf.sizing.records import FoundSizes

_MODEL_TABLE = 'the table of the model, [tool.modelperf.models."PATH"] in pyproject.toml'


class PythonWording(Wording):
    """The wording of markers and the fixture: `dims={"seq": SIZE}`.

    Arguments and keys have the same names. The other settings are options of pytest.
    """

    names: Mapping[str, str] = {
        "baseline_python": BASELINE_PYTHON.flag,
        "batch": BATCH_SIZE.word,
        "cores": CORES.word,
        "dims": DIMS.word,
        "engine_option": ENGINE_OPTION.flag,
        "inputs": INPUTS.word,
        "json": JSON.flag,
        "max_seconds": MAX_SECONDS.flag,
        "state": f'{STATE.word}={{"PAST": "PRESENT"}}',
        "static": STATIC_ONLY.flag,
        "timeout": TIMEOUT.flag,
        "tolerance": TOLERANCE.flag,
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return f"dims={{{', '.join(f'{quoted_text(name)}: SIZE' for name in dims)}}}"


class _TableWording(PythonWording):
    """The wording of tables: `dims = {seq = SIZE}`, with the name of the table."""

    names: Mapping[str, str] = {
        **PythonWording.names,
        "state": f'state = {{"PAST" = "PRESENT"}} in {_MODEL_TABLE}',
    }

    def sizes(self, dims: Sequence[str]) -> str:
        sizes = ", ".join(f"{toml_key(name)} = SIZE" for name in dims)
        return f"dims = {{{sizes}}} in {_MODEL_TABLE}"


PYTHON_WORDING = PythonWording()
TABLE_WORDING = _TableWording()


def recording_with(command: str | None) -> Wording:
    """Return the wording of reports, with this command to record baselines unless it is None."""
    return PYTHON_WORDING if command is None else PythonWording(printable(command))


def in_python(error: ModelPerfError) -> str:
    """Format an error for the user who wrote a marker or a call of the fixture."""
    return printable_lines(_with_sizes(error, PYTHON_WORDING, _as_arguments))


def in_table(error: ModelPerfError, path: str = "", *, has_table: bool = False) -> str:
    """Format an error for the user who wrote the table of a model. `path` is its key."""
    paste = partial(_as_table, path, has_table=has_table)
    return printable_lines(_with_sizes(error, TABLE_WORDING, paste))


def _with_sizes(error: ModelPerfError, wording: Wording, paste: Callable[[FoundSizes], str]) -> str:
    if error.asked is None:
        return error.worded(wording)
    # Imported here, because few runs need it.
    from pytest_modelperf.sizing.finding import sizes_for

    found = sizes_for(error)
    if found is None:
        return error.worded(wording)
    if not found.is_found:
        return f"{error.worded(wording)}\n{found.error}"
    from pytest_modelperf.sizing.finding import render_advice

    return f"{error.message} {render_advice(found, paste(found))}"


def _as_arguments(found: FoundSizes) -> str:
    from pytest_modelperf.sizing.finding import render_arguments

    return render_arguments(found)


def _as_table(path: str, found: FoundSizes, *, has_table: bool) -> str:
    from pytest_modelperf.sizing.finding import render_table, table_lines

    return "\n".join(table_lines(found)) if has_table else render_table(found, path)
