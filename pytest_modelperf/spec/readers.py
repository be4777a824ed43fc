"""Functions that check the values of settings, one for each kind. An error begins with `place`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, read_budgets
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.obtaining.origins import ModelOrigin, OriginKind, read_address
from pytest_modelperf.profiler.inputs.dim_sizes import pair_sizes
from pytest_modelperf.spec.case_spec import DeclaredMember, DeclaredWorkload
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import SECONDS, as_float, as_seconds, nearest, shown, suggestion

if TYPE_CHECKING:
    from pytest_modelperf.spec.case_spec import TestedModel

# One hour between two inferences.
_MOST_MS = 3_600_000.0
_T = TypeVar("_T")


def read_text(value: object, place: str) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise _wrong(value, place, "a text")
    if "\0" in value:
        # Neither a path nor an argument of a program can contain it.
        raise _wrong(value, place, "a text without the character NUL")
    return value


def read_gateway(value: object, place: str) -> str:
    """Read a gateway, or the name of a machine, which has no `=` and is not `popen`."""
    text = read_text(value, place).strip()
    if is_gateway(text):
        from pytest_modelperf.profiler.worker.gateway import check_spec

        check_spec(text, place)
    return text


def is_gateway(text: str) -> bool:
    """Whether the text is a gateway itself, rather than the name of a machine."""
    return "=" in text or text.partition("//")[0] == "popen"


def read_path(value: object, place: str) -> Path:
    return Path(value) if isinstance(value, os.PathLike) else Path(read_place(value, place))


def read_place(value: object, place: str) -> str:
    """Read a path and expand `~`, because a shell does not do so after `=` or in a file."""
    return os.path.expanduser(read_text(value, place))  # noqa: PTH111  # a user may be unknown


def read_flag(value: object, place: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(value, place, "true or false")


def read_seconds(value: object, place: str) -> float:
    seconds = as_seconds(value)
    if seconds is None:
        raise _wrong(value, place, SECONDS)
    return seconds


def read_measure(value: object, place: str) -> Measure:
    for measure in Measure:
        if value == measure.value:
            return measure
    raise _wrong(value, place, " or ".join(measure.value for measure in Measure))


def read_update(value: object, place: str) -> UpdateMode:
    for mode in UpdateMode:
        if value == mode.value:
            return mode
    raise UsageError(
        f"{place} takes all, new or improved, not {shown(value)}. In front of a file or a test, "
        f"write {place}={UpdateMode.ALL.value}."
    )


def read_budget_table(value: object, place: str) -> tuple[Budget, ...]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{place} takes a table such as {{latency_ms = 12}}, not {shown(value)}.")
    return read_budgets(value, place)


def read_model(value: object, place: str) -> TestedModel:
    if isinstance(value, str) and not value:
        raise UsageError(f"{place} is an empty text: give the path of a model.")
    is_model = hasattr(value, "SerializeToString") or callable(value)
    if not is_model and not isinstance(value, str | os.PathLike | bytes):
        raise UsageError(
            f"{place} takes a path, bytes, an onnx.ModelProto or a function, "
            f"not {type(value).__name__}."
        )
    return cast("TestedModel", value)


def read_fixture(value: object, place: str) -> ModelOrigin:
    name = read_text(value, place).strip()
    if not name.isidentifier():
        raise _wrong(value, place, "the name of a fixture")
    return ModelOrigin(OriginKind.FIXTURE, name)


def read_function(value: object, place: str) -> ModelOrigin:
    """Read a function that returns a model, given as a callable or by its name."""
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__name__)
        module = getattr(value, "__module__", None)
        named = f"{module}:{name}" if module else str(name)
        return ModelOrigin(OriginKind.FUNCTION, named, function=value)
    name = read_text(value, place).strip()
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise _wrong(value, place, "a function as 'package.module:function'")
    return ModelOrigin(OriginKind.FUNCTION, name)


def read_url(value: object, place: str) -> ModelOrigin:
    return read_address(read_text(value, place).strip(), place)


def read_pairs(value: object, place: str) -> Mapping[str, str]:
    """Read a table of texts. TOML nests a key with dots, such as `session.intra_op`."""
    if not isinstance(value, Mapping):
        raise _wrong(value, place, 'a table such as {key = "text"}, or {"key": "text"} in Python')
    pairs: dict[str, str] = {}
    for key, found in _flat(value, place):
        if key in pairs:
            raise UsageError(f"{place}: {printable(key)} is given twice: give it once.")
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        pairs[key] = str(found) if is_number else read_text(found, f"{place}: {printable(key)}")
    return pairs


def read_state(value: object, place: str) -> Mapping[str, str]:
    """Map inputs to the outputs that they take over, or to "" if an input stays the same."""
    if isinstance(value, Mapping):
        flat = dict(_flat(value, place))
        named = {key: found for key, found in flat.items() if found != ""}
        return {**dict.fromkeys(flat, ""), **read_pairs(named, place)}
    return read_pairs(value, place)


def _flat(table: Mapping[Any, object], place: str) -> Iterator[tuple[str, object]]:
    for key, value in _named(table, place):
        if isinstance(value, Mapping):
            yield from ((f"{key}.{rest}", found) for rest, found in _flat(value, place))
        else:
            yield key, value


def _named(table: Mapping[Any, object], place: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if not isinstance(key, str):
            raise _wrong(key, place, "names that are texts")
        yield key, value


def read_sizes(value: object, place: str) -> tuple[int, ...]:
    """Read numbers of 1 or more, or raise UsageError for a repeated one."""
    return _read_list(value, place, _read_size)


def read_lengths(value: object, place: str) -> tuple[int, ...]:
    """Read numbers of 0 or more, or raise UsageError for a repeated one."""
    return _read_list(value, place, _read_dim)


def read_phases(value: object, place: str) -> tuple[Phase, ...]:
    names = _read_list(value, place, read_text)
    known = {phase.value: phase for phase in Phase}
    for name in names:
        if name not in known:
            raise _wrong(name, place, " or ".join(known))
    return tuple(known[name] for name in names)


def read_texts(value: object, place: str) -> tuple[str, ...]:
    return _read_list(value, place, read_text)


def read_names(value: object, place: str) -> tuple[str, ...]:
    """Read names from a list, or from one text with commas."""
    texts = read_texts(value, place)
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return read_texts(names, place)


def read_dims(value: object, place: str) -> Mapping[str, tuple[int, ...]]:
    """Read a table with the sizes of each name, or a list with a table of sizes for each case.

    0 is the size of an empty cache.
    """
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return _read_paired(value, place)
    if not isinstance(value, Mapping):
        raise _wrong(value, place, 'a table such as {seq = 64}, or {"seq": 64} in Python')
    return {
        name: _read_list(sizes, f"{place}: {printable(name)}", _read_dim)
        for name, sizes in _named(value, place)
    }


def _read_paired(tables: list[Mapping[str, object]], place: str) -> Mapping[str, tuple[int, ...]]:
    cases = [
        {
            name: _read_dim(size, f"{place}: {printable(name)}")
            for name, size in _named(table, place)
        }
        for table in tables
    ]
    for number, case in enumerate(cases):
        if case.keys() != cases[0].keys() or not case:
            raise UsageError(
                f"{place}: each table of the list takes the same dimensions, such as "
                "[{seq = 64, past = 0}, {seq = 1, past = 128}]."
            )
        if case in cases[:number]:
            raise UsageError(f"{place} has two tables with the same sizes: leave one out.")
    return pair_sizes(cases)


_MEMBER = ("dims", "input_file", "weight")
_WORKLOAD = ("members", "every_ms", "streams")


def read_workload(value: object, place: str) -> DeclaredWorkload:
    """Read the members of a workload, or a table with its members and its arrivals."""
    if not isinstance(value, Mapping):
        return _read_members(value, place)
    table = read_keys(value, _WORKLOAD, place)
    if not table:
        raise _wrong(value, place, "a table such as {every_ms = 20}")
    members = table.get("members")
    found = DeclaredWorkload() if members is None else _read_members(members, f"{place}: members")
    every_ms = None
    if "every_ms" in table:
        every_ms = as_float(table["every_ms"])
        if every_ms is None or not 0.0 < every_ms <= _MOST_MS:
            raise _wrong(table["every_ms"], f"{place}: every_ms", "milliseconds above 0")
    streams = _read_size(table.get("streams", 1), f"{place}: streams")
    return replace(found, every_ms=every_ms, streams=streams)


def _read_members(value: object, place: str) -> DeclaredWorkload:
    """Read a list of members, each a file or a table, or a pattern of files."""
    if isinstance(value, str | os.PathLike):
        return DeclaredWorkload(pattern=read_path(value, place))
    if not isinstance(value, list):
        raise _wrong(
            value,
            place,
            "a list such as [{dims = {seq = 16}, weight = 5}, {dims = {seq = 128}}], or a pattern "
            'of files such as "inputs/*.npz"',
        )
    if not value:
        raise UsageError(f"{place} is an empty list: give something, or leave it out.")
    return DeclaredWorkload(tuple(_read_member(each, place) for each in value))


def _read_member(value: object, place: str) -> DeclaredMember:
    if isinstance(value, str | os.PathLike):
        return DeclaredMember(file=read_path(value, place))
    table = read_keys(value, _MEMBER, place)
    dims, file = table.get("dims"), table.get("input_file")
    if (dims is None) == (file is None):
        raise UsageError(
            f"{place}: a member of a workload has either dims or an input_file, as in "
            f"{{dims = {{seq = 16}}, weight = 5}}, not {shown(value)}."
        )
    if dims is not None and not (isinstance(dims, Mapping) and dims):
        raise _wrong(dims, f"{place}: dims", "a table such as {seq = 16}")
    sizes = {} if dims is None else {name: _read_dim(n, place) for name, n in dims.items()}
    return DeclaredMember(
        dims=sizes,
        file=None if file is None else read_path(file, f"{place}: input_file"),
        weight=_read_size(table.get("weight", 1), f"{place}: weight"),
    )


def read_inner_path(value: object, place: str) -> str:
    """Read a path below the project folder, and normalize it."""
    text = read_text(value, place)
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(
            f"{place}: give a path below the folder of the project, such as models/a.onnx; "
            f"not {shown(text)}."
        )
    return str(path)


# The similarity of two keys that differ by a plural or a typing mistake.
_NEARLY_THE_SAME = 0.9


def read_keys(
    table: object, known: Iterable[str], place: str, of_models: Iterable[str] = ()
) -> Mapping[str, object]:
    """Check the keys of a table, and replace hyphens in them by underscores.

    The error for a key in `of_models` says that it belongs in the table of a model.
    """
    if not isinstance(table, Mapping):
        raise _wrong(table, place, "a table")
    values: dict[str, object] = {}
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in known:
            raise UsageError(f"{place}: {_unknown_key(written, value, known, of_models)}")
        if key in values:
            raise UsageError(
                f"{place}: {key} is given twice, with a hyphen and an underscore: give it once."
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


def _read_size(value: object, place: str) -> int:
    return _read_whole(value, place, least=1)


def _read_dim(value: object, place: str) -> int:
    return _read_whole(value, place, least=0)


def _read_whole(value: object, place: str, *, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise _wrong(value, place, f"whole numbers of {least} or more")


def _read_list(value: object, place: str, read: Callable[[object, str], _T]) -> tuple[_T, ...]:
    items = tuple(read(each, place) for each in (value if isinstance(value, list) else [value]))
    if not items:
        raise UsageError(f"{place} is an empty list: give something, or leave it out.")
    for item in items:
        if items.count(item) > 1:
            raise UsageError(f"{place} has {shown(item)} twice: give it once.")
    return items


def _wrong(value: object, place: str, expected: str) -> UsageError:
    return UsageError(f"{place} takes {expected}, not {shown(value)}.")
