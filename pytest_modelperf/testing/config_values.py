"""Single values of a configuration: parsed from typed text, and checked.

A `parse_` function turns a typed text into the value that a TOML table would hold, or leaves it as
it is; a `read_` function checks that value. Its error begins with `where`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pytest_modelperf.comparing.limits import Tolerances, read_tolerances
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.dim_sizes import pair_sizes
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.given_numbers import SECONDS, as_seconds
from pytest_modelperf.text.words import nearest, shown, suggestion

_T = TypeVar("_T")

# The words that pytest takes in its own ini keys.
_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


def keep(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    """The value as it is: text needs no parsing."""
    return value


def parse_flag(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _TRUE:
        return True
    return False if word in _FALSE else value


def parse_number(value: object, where: str) -> object:  # noqa: ARG001  # as all parsers
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def parse_pairs(value: object, where: str) -> object:
    """The table that texts or lines such as `KEY=VALUE` make."""
    lines = value
    if isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()]
    if not isinstance(lines, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for line in lines:
        key, separator, text = line.partition("=") if isinstance(line, str) else ("", "", "")
        if not key.strip() or not separator:
            raise UsageError(f"{where} takes KEY=VALUE, not {shown(line)}.")
        if key.strip() in pairs:
            raise UsageError(f"{where}: {printable(key.strip())} is given twice: give it once.")
        pairs[key.strip()] = text.strip()
    return pairs


def read_text(value: object, where: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise _wrong(value, where, "a text")


def read_optional_text(value: object, where: str) -> str | None:
    return None if value is None else read_text(value, where)


def read_gateway(value: object, where: str) -> str:
    """A gateway, or the name of a machine; a name has no `=` and is not `popen`."""
    text = read_text(value, where).strip()
    if is_gateway(text):
        from pytest_modelperf.profiler.worker.gateway import check_spec

        check_spec(text, where)
    return text


def read_optional_gateway(value: object, where: str) -> str | None:
    return None if value is None else read_gateway(value, where)


def is_gateway(text: str) -> bool:
    """Whether it says how to reach a machine, and does not name one."""
    return "=" in text or text.partition("//")[0] == "popen"


def read_path(value: object, where: str) -> Path:
    return Path(read_text(value, where))


def read_flag(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(value, where, "true or false")


def read_seconds(value: object, where: str) -> float:
    seconds = as_seconds(value)
    if seconds is None:
        raise _wrong(value, where, SECONDS)
    return seconds


def read_optional_seconds(value: object, where: str) -> float | None:
    return None if value is None else read_seconds(value, where)


def read_tolerance(value: object, where: str) -> Tolerances:
    return read_tolerances(value, where)


def read_measure(value: object, where: str) -> Measure:
    for measure in Measure:
        if value == measure.value:
            return measure
    raise _wrong(value, where, " or ".join(measure.value for measure in Measure))


def read_pairs(value: object, where: str) -> Mapping[str, str]:
    """Texts by their keys. `session.intra_op = "1"` has dots in its key, which TOML nests."""
    if not isinstance(value, Mapping):
        raise _wrong(value, where, 'a table such as {key = "text"}, or {"key": "text"} in Python')
    pairs: dict[str, str] = {}
    for key, found in _flat(value):
        if key in pairs:
            raise UsageError(f"{where}: {printable(key)} is given twice: give it once.")
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        pairs[key] = str(found) if is_number else read_text(found, f"{where}: {printable(key)}")
    return pairs


def read_state(value: object, where: str) -> Mapping[str, str]:
    """The outputs that inputs take over; an empty text for an input that stays the same."""
    if isinstance(value, Mapping):
        named = {key: found for key, found in _flat(value) if found != ""}
        return {**dict.fromkeys((key for key, _ in _flat(value)), ""), **read_pairs(named, where)}
    return read_pairs(value, where)


def _flat(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{rest}", found) for rest, found in _flat(value))
        else:
            yield key, value


def read_sizes(value: object, where: str) -> tuple[int, ...]:
    """Numbers of 1 or more, of which none is there twice."""
    return _read_list(value, where, _read_size)


def read_lengths(value: object, where: str) -> tuple[int, ...]:
    """Numbers of 0 or more, of which none is there twice."""
    return _read_list(value, where, _read_dim)


def read_phases(value: object, where: str) -> tuple[Phase, ...]:
    """Phases of a generation by their names."""
    names = _read_list(value, where, read_text)
    known = {phase.value: phase for phase in Phase}
    for name in names:
        if name not in known:
            raise _wrong(name, where, " or ".join(known))
    return tuple(known[name] for name in names)


def read_texts(value: object, where: str) -> tuple[str, ...]:
    return _read_list(value, where, read_text)


def read_optional_texts(value: object, where: str) -> tuple[str, ...]:
    """No texts for None."""
    return () if value is None else read_texts(value, where)


def read_names(value: object, where: str) -> tuple[str, ...]:
    """Names in a list, or in a text with commas between them."""
    if value is None:
        return ()
    texts = read_texts(value, where)
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return read_texts(names, where)


def read_dims(value: object, where: str) -> Mapping[str, tuple[int, ...]]:
    """Several sizes of a name, or a list of tables, each of which has the sizes of one case.

    0 is the size of an empty cache.
    """
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return _read_paired(value, where)
    if not isinstance(value, Mapping):
        raise _wrong(value, where, 'a table such as {seq = 64}, or {"seq": 64} in Python')
    return {
        name: _read_list(sizes, f"{where}: {printable(name)}", _read_dim)
        for name, sizes in value.items()
    }


def _read_paired(tables: list[Mapping[str, object]], where: str) -> Mapping[str, tuple[int, ...]]:
    cases = [
        {name: _read_dim(size, f"{where}: {printable(name)}") for name, size in table.items()}
        for table in tables
    ]
    for number, case in enumerate(cases):
        if case.keys() != cases[0].keys() or not case:
            raise UsageError(
                f"{where}: each table of the list takes the same dimensions, such as "
                "[{seq = 64, past = 0}, {seq = 1, past = 128}]."
            )
        if case in cases[:number]:
            raise UsageError(f"{where} has two tables with the same sizes: leave one out.")
    return pair_sizes(cases)


def read_inner_path(value: object, where: str) -> str:
    """A path below the folder of the project, as short as it can be written."""
    text = read_text(value, where)
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(
            f"{where}: give a path below the folder of the project, such as models/a.onnx; "
            f"not {shown(text)}."
        )
    return str(path)


# Of two keys that differ by the plural or a slip.
_NEARLY_THE_SAME = 0.9


def read_keys(
    table: object, known: Iterable[str], where: str, of_models: Iterable[str] = ()
) -> Mapping[str, object]:
    """The values of a table by their keys; a hyphen in a key equals an underscore.

    A message says of keys `of_models` that they belong into the table of a model.
    """
    if not isinstance(table, Mapping):
        raise _wrong(table, where, "a table")
    values: dict[str, object] = {}
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in known:
            raise UsageError(f"{where}: {_unknown_key(written, value, known, of_models)}")
        if key in values:
            raise UsageError(
                f"{where}: {key} is given twice, with a hyphen and an underscore: give it once."
            )
        values[key] = value
    return values


def _unknown_key(key: str, value: object, known: Iterable[str], of_models: Iterable[str]) -> str:
    word = key.replace("-", "_")
    hint = suggestion(word, known)
    of_model = nearest(word, set(of_models).difference(known), _NEARLY_THE_SAME)
    if of_model is not None:
        return (
            f"there is no key {printable(key)!r}, but a model has {of_model!r}: write it below "
            '[tool.modelperf.models."models/a.onnx"], with the path of the model, or '
            '"models/*.onnx" for all.'
        )
    if not hint and isinstance(value, Mapping):
        hint = (
            " A model has a table of its own, with the whole path in quotes: "
            '[tool.modelperf.models."models/a.onnx"].'
        )
    return f"there is no key {printable(key)!r}.{hint} There are: {', '.join(known)}."


def _read_size(value: object, where: str) -> int:
    return _read_whole(value, where, least=1)


def _read_dim(value: object, where: str) -> int:
    return _read_whole(value, where, least=0)


def _read_whole(value: object, where: str, *, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise _wrong(value, where, f"whole numbers of {least} or more")


def _read_list(value: object, where: str, read: Callable[[object, str], _T]) -> tuple[_T, ...]:
    items = tuple(read(each, where) for each in (value if isinstance(value, list) else [value]))
    if not items:
        raise UsageError(f"{where} is an empty list: give something, or leave it out.")
    for item in items:
        if items.count(item) > 1:
            raise UsageError(f"{where} has {shown(item)} twice: give it once.")
    return items


def _wrong(value: object, where: str, expected: str) -> UsageError:
    return UsageError(f"{where} takes {expected}, not {shown(value)}.")
