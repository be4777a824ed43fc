"""The spec of a model: its sizes, its workload, its limits, its machines, and how it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError, Wording
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.spec.run_definitions import MAX_SECONDS, MIN_SECONDS, WARMUP_SECONDS, Setting
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.comparing.budgets import Budget
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Measure
    from pytest_modelperf.graph.model_file import ModelSource
    from pytest_modelperf.obtaining.origins import ModelOrigin
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.inputs.mixture import Arrivals, Mixture, WorkloadMember
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiler.sampling.setup import Setup

TestedModel: TypeAlias = "ModelSource | Callable[..., Any]"


class CaseSpec(Struct, frozen=True, kw_only=True):
    """A model as a table, a marker or a call declares it.

    Each combination of its sizes is a case. None: use the setting of the run. A table has the path
    of its model as its key, so its spec has no `model`. A model that does not exist yet has an
    `origin`. `baseline` is the path that names the baseline, if that is not the model's own. Each
    case runs on each of the `machines`.

    A model with state generates each number of tokens in `generates` after a prompt of each length
    in `prompts`. The `phases` of this generation are cases. `state` maps inputs to the outputs that
    they take over. With a `workload`, each case runs all its members in turn. Without `cores`, a
    model runs on one core, and a Python function on all cores of this machine.
    """

    model: TestedModel | None = None
    origin: ModelOrigin | None = None
    batch_sizes: tuple[int | None, ...] = (None,)
    cores: tuple[int, ...] = ()
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    prompts: tuple[int, ...] = ()
    generates: tuple[int, ...] = ()
    phases: tuple[Phase, ...] = tuple(Phase)
    state: Mapping[str, str] = field(default_factory=dict)
    input_file: Path | None = None
    workload: DeclaredWorkload | None = None
    budgets: tuple[Budget, ...] = ()
    tolerances: Tolerances | None = None
    measure: Measure | None = None
    output_sketch: bool | None = None
    engine: str | None = None
    engine_options: Mapping[str, str] = field(default_factory=dict)
    gateway: str | None = None
    max_seconds: float | None = None
    warmup_seconds: float | None = None
    min_seconds: float | None = None
    baseline: str | None = None
    machines: tuple[str, ...] = ()

    @property
    def core_counts(self) -> tuple[int, ...]:
        """The core counts of its cases, or 1 if none is given."""
        return self.cores or (1,)

    def request(self) -> ProfileRequest:
        """Return the request for all cases together.

        Raise UsageError for settings of a generation that has no lengths.
        """
        from pytest_modelperf.graph.binding import parse_input_spec
        from pytest_modelperf.graph.structure import Generation
        from pytest_modelperf.profiler.request import ProfileRequest

        workload = self.workload or DeclaredWorkload()
        mixture = self._read_mixture(workload) if workload.is_mixed else None
        given = None
        if self.input_file is not None:
            from pytest_modelperf.profiler.inputs.given import read_given

            given = read_given(str(self.input_file))
        generations = [
            each
            for prompt in self.prompts or (0,)
            for generate in self.generates or (0,)
            if (each := Generation(prompt, generate, self.state)).phases
        ]
        has_lengths = bool(self.prompts or self.generates)
        words = {"state": bool(self.state), "phase": self.phases != tuple(Phase)}
        for word, is_given in words.items():
            if is_given and not has_lengths:
                raise UsageError(f"{word} is about a generation: give prompt and generate too.")
        if has_lengths and not generations:
            raise UsageError(
                "a generation without a prompt and without tokens to generate has nothing to run: "
                "prompt or generate takes 1 or more."
            )
        return ProfileRequest(
            batch_sizes=self.batch_sizes,
            cores=self.core_counts,
            has_cores=bool(self.cores),
            dims=self.dims,
            inputs=tuple(map(parse_input_spec, self.inputs)),
            given=given if mixture is None else mixture.largest.given,
            mixture=mixture,
            arrivals=workload.arrivals,
            generations=tuple(generations) if has_lengths else (),
            phases=self.phases,
        )

    def _read_mixture(self, declared: DeclaredWorkload) -> Mixture:
        others = {
            "input_file": self.input_file is not None,
            "prompt": bool(self.prompts),
            "generate": bool(self.generates),
        }
        for word, is_given in others.items():
            if is_given:
                raise UsageError(
                    f"{word} and workload both say what the model runs on: give one of them."
                )
        names = {name for member in declared.members for name in member.dims}
        for name in names & self.dims.keys():
            raise UsageError(
                f"dims and workload both give the dimension {printable(name)} a size: give it in "
                "the members of the workload alone."
            )
        return declared.read()


# -- a workload: its members, and when their inferences arrive


class DeclaredMember(Struct, frozen=True, kw_only=True):
    """One member: sizes of dimensions or a file of arrays, and how often it occurs."""

    dims: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None
    weight: int = 1

    def name(self, named_by: Collection[str]) -> str:
        """Return `seq=16,width=4` for these dimensions, or the file name without its suffix."""
        if self.file is not None:
            return self.file.stem
        own = [name for name in self.dims if name in named_by] or self.dims
        return ",".join(f"{name}={self.dims[name]}" for name in own)

    def read(self, named_by: Collection[str]) -> WorkloadMember:
        """Read the arrays of its file, or raise UsageError if that fails."""
        from pytest_modelperf.profiler.inputs.given import read_given
        from pytest_modelperf.profiler.inputs.mixture import WorkloadMember

        given = None if self.file is None else read_given(str(self.file))
        return WorkloadMember(
            name=self.name(named_by), weight=self.weight, dims=self.dims, given=given
        )


class DeclaredWorkload(Struct, frozen=True):
    """The members of a workload, or the pattern of the files that are its members.

    Without either, the inputs of the case are run. An inference arrives every `every_ms`, even if
    earlier ones are still running. Up to `streams` run at once.
    """

    members: tuple[DeclaredMember, ...] = ()
    pattern: Path | None = None
    every_ms: float | None = None
    streams: int = 1

    @property
    def is_mixed(self) -> bool:
        """Whether it has members of its own."""
        return bool(self.members) or self.pattern is not None

    @property
    def arrivals(self) -> Arrivals | None:
        """When inferences arrive, or None if each begins after the previous one ends."""
        from pytest_modelperf.profiler.inputs.mixture import Arrivals

        if self.every_ms is None and self.streams == 1:
            return None
        return Arrivals(self.every_ms, self.streams)

    def located(self, find: Callable[[str], Path]) -> DeclaredWorkload:
        """Make the paths of its files absolute. `find` resolves a relative path."""
        if self.pattern is not None:
            folder = find(os.fspath(self.pattern.parent))
            return replace(self, pattern=folder / self.pattern.name)
        return replace(
            self,
            members=tuple(
                each if each.file is None else replace(each, file=find(os.fspath(each.file)))
                for each in self.members
            ),
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its members. Raises UsageError if the pattern matches none."""
        if self.pattern is None:
            return tuple(each.file for each in self.members if each.file is not None)
        found = tuple(sorted(self.pattern.parent.glob(self.pattern.name)))
        if not found:
            raise UsageError(
                f"no file matches the workload {printable(str(self.pattern))}: give a pattern of "
                ".npz files, such as inputs/*.npz."
            )
        return found

    def read(self) -> Mixture:
        """Read the workload with all arrays, or raise UsageError if a file cannot be read."""
        from pytest_modelperf.profiler.inputs.mixture import Mixture

        members = self.members or tuple(DeclaredMember(file=file) for file in self.files)
        names = dict.fromkeys(name for each in members for name in each.dims)
        varying = [name for name in names if len({each.dims.get(name) for each in members}) > 1]
        return Mixture.of([each.read(varying) for each in members])


class MeasuringSettings(Struct, frozen=True, kw_only=True):
    """The settings for measuring each case. Without a gateway, it runs on this machine."""

    max_seconds: float
    warmup_seconds: float | None = None
    min_seconds: float | None = None
    timeout: float
    engine: str
    engine_options: Mapping[str, str] = field(default_factory=dict)
    gateway: str | None = None

    def check_seconds(self, name_of: Callable[[Setting], str]) -> None:
        """Raise UsageError if a minimum time exceeds the maximum.

        `name_of` returns the name of a setting as the user types it.
        """
        longest, limit = name_of(MAX_SECONDS), self.max_seconds
        for setting in (WARMUP_SECONDS, MIN_SECONDS):
            seconds, name = getattr(self, setting.field), name_of(setting)
            if seconds is not None and seconds > limit:
                raise UsageError(
                    f"{name} is {seconds:g}, which is longer than {longest}, {limit:g}: make "
                    f"{longest} {2 * seconds:g}, or {name} shorter."
                )

    def setup(
        self, extensions: Extensions, wording: Wording, *, spec: str | None, is_stretched: bool
    ) -> Setup:
        """Return the setup that measures through the gateway `spec`, if one is given.

        If it `is_stretched`, a slow model may exceed `max_seconds`.
        """
        # Looked up first: a missing engine is then reported before the slow import of scipy.
        engine = extensions.engines.find(self.engine)

        from pytest_modelperf.profiler.sampling.policy import STRETCH_SECONDS, SamplingPolicy
        from pytest_modelperf.profiler.sampling.setup import Setup
        from pytest_modelperf.profiler.worker.gateway import LOCAL

        return Setup(
            engine=engine,
            options=self.engine_options,
            spec=spec or LOCAL,
            policy=SamplingPolicy(
                max_seconds=self.max_seconds,
                min_seconds=self.min_seconds or 0.0,
                min_warmup_seconds=self.warmup_seconds or 0.0,
            ),
            limit_s=self.timeout,
            stretch_seconds=STRETCH_SECONDS if is_stretched else None,
            wording=wording,
        )
