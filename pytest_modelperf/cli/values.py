"""The values of options that are lists, pairs and sizes, read from their text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.binding import InputSpec
    from pytest_modelperf.graph.phases import Generation

_MILLISECONDS = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Returns the positive numbers in a comma-separated list, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} takes numbers of 1 or more, such as 1,8; not {text!r}.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def parse_threshold(option: str, text: str) -> float:
    """Returns the milliseconds, which may be a fraction."""
    value = float(text) if _MILLISECONDS.fullmatch(text.strip()) else 0.0
    # A text with enough digits is read as 0 or as infinity.
    if not 0 < value < math.inf:
        raise UsageError(f"{option} takes milliseconds above 0, such as 20 or 0.5; not {text!r}.")
    return value


def parse_shares(option: str, text: str) -> tuple[float, ...]:
    """Returns the shares in a comma-separated list, each once, the smallest first."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0.0 <= share < 1.0 for share in shares):
        raise UsageError(f"{option} takes shares from 0 to below 1, such as 0.5,0.9; not {text!r}.")
    return tuple(sorted(set(shares)))


def parse_forms(option: str, text: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = [part.strip().lower() for part in text.split(",")]
    if not all(name in known for name in names):
        raise UsageError(f"{option} takes {', '.join(known)}; not {text!r}.")
    return tuple(dict.fromkeys(form for name in names for form in known[name]))


def parse_interpreter(option: str, path: str | None, *, is_here: bool = True) -> str | None:
    """Returns the gateway to a Python interpreter, if one is given.

    One that is not here is a path on the machine that measures, which says if it is not there.
    """
    if path is None:
        return None
    from pytest_modelperf.profiler.worker.gateway import LOCAL, interpreter_spec

    return interpreter_spec(path, option) if is_here else f"{LOCAL}//python={path}"


def parse_dims(texts: Sequence[str], *, several: bool = True) -> Mapping[str, tuple[int, ...]]:
    """Returns the sizes of each dimension; the sizes in `seq=64,past=0` go together."""
    from pytest_modelperf.graph.binding import parse_dim

    if several and any("=" in part for text in texts for part in text.split(",")[1:]):
        return _parse_paired(texts)
    dims: dict[str, tuple[int, ...]] = {}
    for text in texts:
        first, *more = text.split(",") if several else [text]
        name, size = parse_dim(first)
        values = (size, *(parse_dim(f"{name}={part}")[1] for part in more))
        if name in dims:
            name = printable(name)
            raise UsageError(f"--dim {name} is given twice. Give several sizes as {name}=64,128.")
        dims[name] = values
    return dims


def _parse_paired(texts: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    from pytest_modelperf.graph.binding import parse_dim
    from pytest_modelperf.profiler.dim_sizes import pair_sizes

    cases = [dict(parse_dim(part) for part in text.split(",")) for text in texts]
    counts = [len(text.split(",")) for text in texts]
    is_whole = [len(case) for case in cases] == counts
    if not is_whole or any(case.keys() != cases[0].keys() for case in cases):
        raise UsageError(
            "each --dim with several names is one case, and takes all names once: "
            "--dim seq=64,past=0 --dim seq=1,past=128."
        )
    if any(case in cases[:number] for number, case in enumerate(cases)):
        raise UsageError("two of the --dim have the same sizes: leave one out.")
    return pair_sizes(cases)


def parse_inputs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    from pytest_modelperf.graph.binding import parse_input_spec

    return tuple(parse_input_spec(text) for text in texts)


def parse_generations(
    prompt: str | None, generate: str | None, state: Sequence[str]
) -> tuple[Generation, ...]:
    """Returns a generation for each length of the prompt and each number of tokens."""
    from pytest_modelperf.graph.phases import Generation

    pairs = parse_pairs("--state", state)
    if prompt is None and generate is None:
        if pairs:
            raise UsageError("--state is about a generation: give --prompt and --generate too.")
        return ()
    prompts = (0,) if prompt is None else parse_numbers("--prompt", prompt)
    counts = (0,) if generate is None else parse_numbers("--generate", generate)
    return tuple(Generation(tokens, count, pairs) for tokens in prompts for count in counts)


def parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the values of a repeated KEY=VALUE by their keys."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} takes KEY=VALUE, not {text!r}.")
        if key.strip() in pairs:
            raise UsageError(f"{option} {printable(key.strip())} is given twice: give it once.")
        pairs[key.strip()] = value.strip()
    return pairs
