"""The sizes and session options that a program used of one model, as the lines of its table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.binding import (
    Binding,
    DeclaredInput,
    bind_inputs,
    dim_name,
    evaluate,
    find_batch,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import exact_number, format_shape
from pytest_modelperf.text.words import count_of, quoted_text, toml_key
from pytest_modelperf.tracing.launch import SessionRuns

# The largest numbers of cases in a table, and of comments on sizes.
_MOST_CASES = 4
_MOST_COMMENTS = 8
_THREADS, _OTHER_THREADS = "intra_op_num_threads", "inter_op_num_threads"
_MODE, _LEVEL, _PROVIDERS = "execution_mode", "graph_optimization_level", "providers"
_PARALLEL, _ALL = "parallel", "all"
_CPU, _SUFFIX = "CPUExecutionProvider", "ExecutionProvider"
# Options that a measured session sets itself, or that do not change its speed.
_LEFT_OUT = frozenset({
    "enable_profiling", "optimized_model_filepath", "session.force_spinning_stop",
    "use_per_session_threads",
})  # fmt: skip

Shapes = Mapping[str, tuple[int, ...]]


class UsedCase(Struct, frozen=True):
    """Sizes at which a program ran a model, how often, and their form in a table.

    `inputs` has the whole inputs if `batch_size` and `dims` cannot give them their shapes.
    """

    shapes: Shapes
    count: int
    batch_size: int | None = None
    dims: Mapping[str, int] = {}
    inputs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The shapes of its inputs: `x: 1x3x736x992`."""
        return ", ".join(
            f"{printable(name)}: {format_shape(shape)}" for name, shape in self.shapes.items()
        )


class UsedModel(Struct, frozen=True):
    """What a program used of a model.

    `cases` get a place in its table, and `left` are the others, both the most used first. `values`
    are inputs of one number that was always the same. `cores` is None if the program leaves the
    number of threads to the runtime. `other_options` is the number of further sets of options.
    """

    cases: tuple[UsedCase, ...]
    left: tuple[UsedCase, ...] = ()
    values: tuple[str, ...] = ()
    cores: int | None = None
    engine_options: Mapping[str, str] = {}
    other_options: int = 0

    @property
    def count(self) -> int:
        """The number of known inferences."""
        return sum(each.count for each in (*self.cases, *self.left))

    @property
    def options_text(self) -> str:
        """The settings of its sessions: `cores=2, graph_optimization_level=basic`."""
        cores = () if self.cores is None else (f"cores={self.cores}",)
        return ", ".join([*cores, *(f"{k}={v}" for k, v in self.engine_options.items())])


def use_sizes(
    declared: Sequence[DeclaredInput], runs: Sequence[SessionRuns], model: str
) -> UsedModel | None:
    """Return what the sessions of one model used, or None if no input shapes are known."""
    counts: Counter[tuple[tuple[str, tuple[int, ...]], ...]] = Counter()
    for run in runs:
        for each in run.inferences:
            if each.shapes is not None:
                counts[tuple(sorted(each.shapes.items()))] += each.count
    names = [each.name for each in declared]
    seen = [
        _case(
            declared, {name: dict(key)[name] for name in names if name in dict(key)}, count, model
        )
        # Among sizes that were used equally often, the largest are most informative.
        for key, count in sorted(counts.items(), key=lambda item: (-item[1], -_elements(item[0])))
    ]
    if not seen:
        return None
    cases = _chosen(seen)
    main = max(runs, key=lambda run: run.count)
    return UsedModel(
        cases=cases,
        left=tuple(each for each in seen if each not in cases),
        values=tuple(_values(declared, runs, cases)),
        cores=int(main.options.get(_THREADS, "0")) or None,
        engine_options=_engine_options(main.options),
        other_options=len({tuple(run.options.items()) for run in runs}) - 1,
    )


def used_lines(used: UsedModel, program: str) -> str:
    """Return the lines of a model's table: comments that say what was used, and the settings."""
    return "".join(f"{line}\n" for line in (*_comments(used, program), *_keys(used)))


# -- sizes


def _case(declared: Sequence[DeclaredInput], shapes: Shapes, count: int, model: str) -> UsedCase:
    batch = find_batch(declared)
    places = batch.places if batch else ()
    batch_size: int | None = None
    dims: dict[str, int] = {}
    for each in declared:
        for axis, (dim, size) in enumerate(
            zip(each.dims or (), shapes.get(each.name, ()), strict=False)
        ):
            name = dim_name(each, axis, dim)
            if name is not None and (each.name, axis) in places:
                batch_size = size
            elif name is not None:
                dims.setdefault(name, size)
    # A size such as `past + 1` follows from others.
    free = {
        name: size
        for name, size in dims.items()
        if evaluate(name, {other: dims[other] for other in dims if other != name}) is None
    }
    try:
        bound = bind_inputs(declared, Binding(batch_size=batch_size, dims=free), model)
        fits = all(bound.shapes.get(name) == shape for name, shape in shapes.items())
    except BindingError:
        fits = False
    if fits:
        own = None if batch_size == 1 else batch_size
        return UsedCase(shapes, count, own, free)
    texts = (_input_text(each, shapes[each.name]) for each in declared if each.name in shapes)
    return UsedCase(shapes, count, inputs=tuple(texts))


def _chosen(seen: Sequence[UsedCase]) -> tuple[UsedCase, ...]:
    """Return the most used cases that a table can name together."""
    most = seen[0]
    if most.inputs:
        return (most,)
    names = most.dims.keys()
    alike = [each for each in seen if not each.inputs and each.dims.keys() == names]
    first = alike[:_MOST_CASES]
    # Each batch size of a table is combined with each of its dims.
    sizes = {(each.batch_size, tuple(each.dims.values())) for each in first}
    batches, dims = ({pair[place] for pair in sizes} for place in (0, 1))
    if len(sizes) < len(batches) * len(dims):
        by_batch: Counter[int | None] = Counter()
        for each in alike:
            by_batch[each.batch_size] += each.count
        batch = by_batch.most_common(1)[0][0]
        first = [each for each in alike if each.batch_size == batch][:_MOST_CASES]
    return tuple(first)


def _values(
    declared: Sequence[DeclaredInput], runs: Sequence[SessionRuns], cases: Sequence[UsedCase]
) -> Iterator[str]:
    known = [each.values for run in runs for each in run.inferences]
    for each in declared:
        values = {own.get(each.name) for own in known}
        shapes = {case.shapes.get(each.name) for case in cases}
        shape, value = shapes.pop(), values.pop() if values else None
        is_constant = not (shapes or values) and value is not None and math.isfinite(value)
        is_given = any(case.inputs for case in cases)
        if is_constant and shape is not None and value is not None and not is_given:
            yield f"{_input_text(each, shape)}:{exact_number(float(value))}"


def _input_text(declared: DeclaredInput, shape: tuple[int, ...]) -> str:
    return f"{declared.name}:{declared.dtype}:{'x'.join(map(str, shape))}"


def _elements(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> int:
    return sum(math.prod(shape) for _, shape in shapes)


# -- options


def _engine_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options as settings, without the defaults of a measured session."""
    found: dict[str, str] = {}
    providers = [name.removesuffix(_SUFFIX) for name in options.get(_PROVIDERS, "").split(", ")]
    if providers[0] not in {"", _CPU.removesuffix(_SUFFIX)}:
        found["provider"] = ",".join(providers)
    level = options.get(_LEVEL, "").lower().removeprefix("ort_")
    level = "none" if level == "disable_all" else level.removeprefix("enable_")
    if level not in {"", _ALL}:
        found[_LEVEL] = level
    if options.get(_MODE, "").lower() == f"ort_{_PARALLEL}":
        found[_MODE] = _PARALLEL
        if options.get(_OTHER_THREADS, "0") != "0":
            found[_OTHER_THREADS] = options[_OTHER_THREADS]
    own = {_THREADS, _OTHER_THREADS, _MODE, _LEVEL, _PROVIDERS, *_LEFT_OUT}
    for name, value in options.items():
        if name not in own and not name.partition(".")[0].endswith(_SUFFIX):
            found[name] = value.lower() if value in {"True", "False"} else value
    return found


# -- lines


def _comments(used: UsedModel, program: str) -> Iterator[str]:
    yield f"# {count_of(used.count, 'inference')} of: {printable(program)}"
    every = (*used.cases, *used.left)
    for place, case in enumerate(every[:_MOST_COMMENTS]):
        left = "" if place < len(used.cases) else " (not in this table)"
        yield f"# {case.count:,} with {case.text}{left}"
    others = every[_MOST_COMMENTS:]
    if others:
        inferences = count_of(sum(case.count for case in others), "inference")
        yield f"# {inferences} with {count_of(len(others), 'other size')} (not in this table)"
    if used.cores is None:
        yield "# The program leaves the number of threads to the runtime; here cores sets it."
    if used.other_options:
        sets = count_of(used.other_options, "other set")
        yield f"# {sets} of session options was used less often."


def _keys(used: UsedModel) -> Iterator[str]:
    cases = used.cases
    batches = list(dict.fromkeys(each.batch_size or 1 for each in cases))
    if batches != [1]:
        yield f"batch_size = {batches[0] if len(batches) == 1 else batches}"
    dims = list(dict.fromkeys(tuple(each.dims.items()) for each in cases))
    if len(dims) == 1 and dims[0]:
        yield f"dims = {_table(dims[0])}"
    elif dims[0] and len(dims[0]) == 1:
        yield f"dims = {{{toml_key(dims[0][0][0])} = {[size for ((_, size),) in dims]}}}"
    elif dims[0]:
        yield f"dims = [{', '.join(map(_table, dims))}]"
    inputs = (*cases[0].inputs, *used.values)
    if inputs:
        yield f"inputs = [{', '.join(map(quoted_text, inputs))}]"
    if used.cores is not None:
        yield f"cores = {used.cores}"
    if used.engine_options:
        options = used.engine_options.items()
        pairs = ", ".join(f"{toml_key(k)} = {quoted_text(v)}" for k, v in options)
        yield f"engine_options = {{{pairs}}}"


def _table(sizes: Sequence[tuple[str, int]]) -> str:
    return f"{{{', '.join(f'{toml_key(name)} = {size}' for name, size in sizes)}}}"
