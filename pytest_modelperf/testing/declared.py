"""A model as a table, a marker or a call declares it, and its cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.limits import read_tolerances
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.dim_sizes import combine_sizes, varying_names
from pytest_modelperf.testing.config_values import (
    read_dims,
    read_gateway,
    read_lengths,
    read_names,
    read_pairs,
    read_path,
    read_phases,
    read_seconds,
    read_sizes,
    read_text,
    read_texts,
)
from pytest_modelperf.testing.model_tables import ModelTable, Terms
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

if TYPE_CHECKING:
    from pytest_modelperf.graph.model_file import ModelSource
    from pytest_modelperf.profiler.request import ProfileRequest

TestedModel: TypeAlias = "ModelSource | Callable[..., Any]"


class DeclaredModel(Terms, frozen=True, kw_only=True):
    """One model with its terms; each combination of its sizes is a case."""

    model: TestedModel

    @property
    def is_function(self) -> bool:
        return callable(self.model) or self.engine == "callable"

    def cases(self) -> tuple[DeclaredCase, ...]:
        """All cases; ModelError or BindingError if the model cannot have these sizes."""
        whole = self.request()
        requests = [
            replace(
                whole,
                batch_sizes=(batch_size,),
                dims={name: (size,) for name, size in sizes.items()},
                named=varying_names(self.dims),
            )
            for batch_size in self.batch_sizes
            for sizes in combine_sizes(self.dims)
        ]
        from pytest_modelperf.profiler.records import Case

        # Read once for all cases: what names the batch size is in the model.
        batch_sizes = self._batch_sizes(whole)
        return tuple(
            DeclaredCase(
                self,
                replace(request, cores=(cores,)),
                Case(batch_size, cores, request.varying(next(request.bindings()))).id,
                machine,
            )
            for request, batch_size in zip(requests, batch_sizes, strict=True)
            for cores in self.cores
            for machine in self.machines or (None,)
        )

    def request(self) -> ProfileRequest:
        """All cases together."""
        from pytest_modelperf.graph.binding import parse_input_spec
        from pytest_modelperf.profiler.given_inputs import read_given
        from pytest_modelperf.profiler.request import ProfileRequest

        return ProfileRequest(
            batch_sizes=self.batch_sizes,
            cores=self.cores,
            dims=self.dims,
            inputs=tuple(map(parse_input_spec, self.inputs)),
            given=None if self.input_file is None else read_given(str(self.input_file)),
        )

    def _batch_sizes(self, request: ProfileRequest) -> tuple[int, ...]:
        """The batch size of each combination of a batch size and dimensions."""
        from pytest_modelperf.profiler.request import batch_sizes_of

        if callable(self.model) or self.is_function:
            return tuple(binding.batch_size or 1 for binding in request.bindings())
        return batch_sizes_of(self.model, request)


class DeclaredCase(Struct, frozen=True):
    """One case of a declared model; `id` is that of its baseline.

    `machine` is the key or tag of the machine that runs it; None: any.
    """

    declared: DeclaredModel
    request: ProfileRequest
    id: str
    machine: str | None = None

    @property
    def name(self) -> str:
        """What tells it from the others: `b8-c2`, or `b8-c2@board` where a machine is named."""
        return self.id if self.machine is None else f"{self.id}@{self.machine}"

    @property
    def conditions(self) -> tuple[object, ...]:
        """Facts that the id does not tell; two cases with the same id and facts are the same."""
        said = self.declared
        dims = {name: size for name, (size,) in self.request.dims.items()}
        return (said.model, dims, said.inputs, said.input_file, said.engine, said.engine_options)


def declared_by_table(table: ModelTable | None, model: Path, root: Path) -> DeclaredModel:
    """A model as its table declares it; without a table, one case with the defaults."""
    if table is None:
        return DeclaredModel(model=model)
    terms = {name: getattr(table, name) for name in Terms.__struct_fields__}
    declared = DeclaredModel(model=model, **terms)
    if declared.input_file is None:
        return declared
    return replace(declared, input_file=root / declared.input_file)


def read_declared(
    words: Mapping[str, object], where: str, find: Callable[[str], Path]
) -> DeclaredModel:
    """A model as a marker or a call declares it; a UsageError begins with `where`.

    `find` makes a path of one that is relative.
    """
    for word in words:
        if word not in CASE_WORDS:
            raise UsageError(
                f"{where}: there is no argument {printable(word)!r}.{suggestion(word, CASE_WORDS)} "
                f"There are: {', '.join(CASE_WORDS)}."
            )
    given = {
        _FIELDS.get(word, word): CASE_WORDS[word](_as_written(value), f"{where}: {word}")
        for word, value in words.items()
        if value is not None
    }
    if "model" not in given:
        raise UsageError(f"{where}: which model? Give model='model.onnx'.")
    declared = DeclaredModel(**given)
    model = declared.model
    if isinstance(model, str | os.PathLike) and not declared.is_function:
        declared = replace(declared, model=find(os.fspath(model)))
    if declared.input_file is not None:
        declared = replace(declared, input_file=find(os.fspath(declared.input_file)))
    return declared


def _as_written(value: object) -> object:
    """The value as a table would have it: sequences as lists, paths as texts."""
    if isinstance(value, tuple | range):
        return list(value)
    if isinstance(value, Mapping):
        return {key: _as_written(inner) for key, inner in value.items()}
    return value


def _read_model(value: object, where: str) -> Any:  # noqa: ANN401  # a model comes in many forms
    if isinstance(value, str) and not value:
        raise UsageError(f"{where} is an empty text: give the path of a model.")
    is_model = hasattr(value, "SerializeToString") or callable(value)
    if not is_model and not isinstance(value, str | os.PathLike | bytes):
        raise UsageError(
            f"{where} takes a path, bytes, an onnx.ModelProto or a function, not {value!r}."
        )
    return value


CASE_WORDS: Mapping[str, Callable[[object, str], Any]] = {
    "model": _read_model,
    "batch_size": read_sizes,
    "cores": read_sizes,
    "dims": read_dims,
    "inputs": read_texts,
    "prompt": read_lengths,
    "generate": read_lengths,
    "phase": read_phases,
    "state": read_pairs,
    "input_file": read_path,
    "tolerance": read_tolerances,
    "engine": read_text,
    "engine_options": read_pairs,
    "gateway": read_gateway,
    "max_seconds": read_seconds,
    "warmup_seconds": read_seconds,
    "min_seconds": read_seconds,
    "baseline": read_text,
    "machine": read_names,
}
_FIELDS = {
    "batch_size": "batch_sizes",
    "prompt": "prompts",
    "generate": "generates",
    "phase": "phases",
    "tolerance": "tolerances",
    "machine": "machines",
}
