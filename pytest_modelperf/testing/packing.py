"""Outcomes as text, for the process that tells them: the values of fields, read by their types.

Nothing in the text says which class to make or what to call, so that none can be made but these.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import json
import numbers
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from pytest_modelperf.testing.outcomes import CaseOutcome

Read: TypeAlias = Callable[[Any], Any]

_UNIONS = (Union, types.UnionType)
_TEXTS: Mapping[type, Read] = {dt.date: dt.date.fromisoformat, bytes: base64.b64decode}


def pack(outcomes: Iterable[CaseOutcome]) -> str:
    return json.dumps([_plain(outcome) for outcome in outcomes])


def unpack(text: str) -> tuple[CaseOutcome, ...]:
    """What `pack` was given."""
    outcomes: tuple[CaseOutcome, ...] = _reader(tuple[CaseOutcome, ...])(json.loads(text))
    return outcomes


def _plain(value: Any) -> Any:  # noqa: ANN401, PLR0911  # any field; a return for each kind
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(each)] for key, each in value.items()]
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, numbers.Real):
        # One of numpy.
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError(f"an outcome holds a {type(value).__name__}, which has no form as text")


@cache
def _reader(kind: Any) -> Read:  # noqa: ANN401, PLR0911  # what typing has, too; likewise
    """What makes of plain values again what they were."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        own = [_reader(each) for each in arguments if each is not types.NoneType]
        return _optional(own[0]) if len(own) == 1 else _one_of_several
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin is Mapping:
        key, value = map(_reader, arguments)
        return lambda pairs: {key(name): value(each) for name, each in pairs}
    if is_dataclass(kind):
        return partial(_read_record, kind)
    if kind in (str, int, float, bool):
        return _as_it_is
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    return _TEXTS[kind]


def _read_record(kind: Any, values: list[Any]) -> Any:  # noqa: ANN401  # a class, and one of it
    read = zip(_fields(kind), values, strict=True)
    return kind(**{name: reader(value) for (name, reader), value in read})


@cache
def _fields(kind: Any) -> tuple[tuple[str, Read], ...]:  # noqa: ANN401  # likewise
    """Looked at when there is one to be read, for a record may hold others of its kind."""
    hints = get_type_hints(kind)
    return tuple((field.name, _reader(hints[field.name])) for field in fields(kind))


def _tuple_reader(arguments: tuple[Any, ...]) -> Read:
    if arguments[1:] == (...,):
        each = _reader(arguments[0])
        return lambda values: tuple(map(each, values))
    readers = tuple(map(_reader, arguments))
    return lambda values: tuple(read(v) for read, v in zip(readers, values, strict=True))


def _optional(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _one_of_several(value: Any) -> Any:  # noqa: ANN401  # a number, a text, or some
    return tuple(value) if isinstance(value, list) else value


def _as_it_is(value: Any) -> Any:  # noqa: ANN401  # likewise
    return value
