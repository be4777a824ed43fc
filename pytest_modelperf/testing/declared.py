"""A model as a table, a marker or a call declares it, and its cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.limits import PHASE_WORDS, Budget, read_tolerances
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.dim_sizes import combine_sizes, varying_names
from pytest_modelperf.testing.config_values import (
    read_dims,
    read_gateway,
    read_lengths,
    read_measure,
    read_names,
    read_pairs,
    read_path,
    read_phases,
    read_seconds,
    read_sizes,
    read_state,
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
        parts = self._parts(whole)
        requests = [
            replace(
                part,
                batch_sizes=(batch_size,),
                dims={name: (size,) for name, size in sizes.items()},
                named=varying_names(self.dims),
            )
            for batch_size in self.batch_sizes
            for sizes in combine_sizes(self.dims)
            for part in parts
        ]
        from pytest_modelperf.profiler.records import Case

        # Read once for all cases: what names the batch size is in the model.
        batch_sizes = self._batch_sizes(whole)
        bindings = [next(request.bindings()) for request in requests]
        return tuple(
            DeclaredCase(
                self,
                replace(request, cores=(cores,)),
                Case(batch_size, cores, request.varying(binding), phase=binding.phase).id,
                machine,
            )
            for request, binding, batch_size in zip(requests, bindings, batch_sizes, strict=True)
            for cores in self.cores
            for machine in self.machines or (None,)
        )

    def request(self) -> ProfileRequest:
        """All cases together."""
        from pytest_modelperf.graph.binding import parse_input_spec
        from pytest_modelperf.graph.phases import Generation
        from pytest_modelperf.profiler.given_inputs import read_given
        from pytest_modelperf.profiler.request import ProfileRequest

        generations = [
            Generation(prompt, generate, self.state)
            for prompt in self.prompts or (0,)
            for generate in self.generates or (0,)
        ]
        return ProfileRequest(
            batch_sizes=self.batch_sizes,
            cores=self.cores,
            dims=self.dims,
            inputs=tuple(map(parse_input_spec, self.inputs)),
            given=None if self.input_file is None else read_given(str(self.input_file)),
            generations=tuple(generations) if self.prompts or self.generates else (),
            phases=self.phases,
        )

    def _parts(self, whole: ProfileRequest) -> tuple[ProfileRequest, ...]:
        """The request for each phase of a generation; the whole where nothing is generated.

        UsageError for words about phases that the model lacks.
        """
        if not whole.generations:
            self._require_phases(())
            return (whole,)
        if self.is_function or callable(self.model):
            raise UsageError(
                "prompt and generate are about an ONNX model that hands on its state, and the "
                "model is a Python function: leave them out."
            )
        from pytest_modelperf.graph.model_file import open_model
        from pytest_modelperf.graph.phases import phases_of_all
        from pytest_modelperf.profiler.request import phases_of

        file = open_model(self.model)
        known = {phase for each in whole.generations for phase in phases_of(file, each)}
        parts = [
            replace(whole, generations=(generation,), phases=(phase.phase,))
            for generation, phase in phases_of_all(whole.generations, whole.phases)
            if phase in known
        ]
        if not parts:
            chosen = " and ".join(phase.value for phase in self.phases)
            has = " and ".join(dict.fromkeys(phase.phase.value for phase in known))
            raise UsageError(
                f"phase chooses {chosen}, and {file.name} has {has} alone with these lengths: "
                "leave out phase, or give prompt for a prefill and generate for steps."
            )
        self._require_phases([part.phases[0] for part in parts])
        return tuple(parts)

    def _require_phases(self, phases: Sequence[Phase]) -> None:
        """UsageError for a word about a phase that no case is."""
        if self.state and not phases:
            raise UsageError("state is about a generation: give prompt and generate too.")
        words = {b.word: b.figure.phase for b in self.budgets if b.figure.phase is not None}
        for word, _ in () if self.tolerances is None else self.tolerances.phases:
            words[word] = PHASE_WORDS[word]
        for word, phase in words.items():
            if phase not in phases:
                length = "prompt" if phase is Phase.PREFILL else "generate"
                raise UsageError(
                    f"{word} is about the {phase.value} of a generation, and no case of this model "
                    f"is one: give {length}, or leave out {word}."
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
    def phase(self) -> Phase | None:
        """The phase of a generation that it is."""
        return self.request.phases[0] if self.request.generations else None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of its model that a case of its phase has a figure for."""
        return tuple(each for each in self.declared.budgets if each.figure.is_of(self.phase))

    @property
    def conditions(self) -> tuple[object, ...]:
        """Facts that the id does not tell; two cases with the same id and facts are the same."""
        said = self.declared
        dims = {name: size for name, (size,) in self.request.dims.items()}
        return (
            *(said.model, dims, said.inputs, said.input_file, said.engine, said.engine_options),
            self.request.generations,
        )


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
    "state": read_state,
    "input_file": read_path,
    "tolerance": read_tolerances,
    "measure": read_measure,
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
