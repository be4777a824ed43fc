"""The settings of a test run, as they are once they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.settings_table import PYPROJECT
from pytest_modelperf.spec import run_definitions as run
from pytest_modelperf.spec.measuring_settings import MeasuringSettings
from pytest_modelperf.spec.model_tables import ModelTables
from pytest_modelperf.spec.readers import is_gateway
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, UpdateMode
from pytest_modelperf.spec.setting import PREFIX, Place
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

if TYPE_CHECKING:
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Measure
    from pytest_modelperf.spec.case_spec import CaseSpec

GATEWAYS = "machines"
# The settings that a model may have for itself; engine options belong to an engine.
_OF_MODELS = tuple(
    each
    for each in RUN_SETTINGS
    if each.stands_in(Place.MODEL) and each not in {run.ENGINE, run.ENGINE_OPTION}
)


class RunSettings(MeasuringSettings, frozen=True, kw_only=True, eq=False):
    """All settings of a run. `typed` has the keys of the options on the command line.

    `gateway` is the name of one of the `gateways`, or a gateway itself; None: models run here.
    `json`, `markdown`, `html`, `benchmark_json`, `bencher_json` and `trace` are relative to where
    pytest was started. `history` is relative to the root.
    """

    tolerances: Tolerances
    measure: Measure
    output_sketch: bool
    static_only: bool
    against: str | None
    baseline_python: str | None
    baseline_requirements: tuple[str, ...]
    judge_engine_upgrades: bool
    baseline_dir: Path
    update: UpdateMode | None
    uncommitted: bool
    strict: bool
    prune: bool
    no_cache: bool
    json: str | None
    markdown: str | None
    html: str | None
    benchmark_json: str | None
    bencher_json: str | None
    history: str | None
    trace: str | None
    cluster: str | None
    machine: tuple[str, ...]
    root: Path
    models: ModelTables
    gateways: Mapping[str, str] = field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    # A slow model may take longer if no source gives a time.
    has_given_seconds: bool = False

    def __repr__(self) -> str:
        return f"<settings of {self.root}>"

    @property
    def uses_cluster(self) -> bool:
        """Whether a cluster measures the cases; a run that only counts needs none."""
        return self.cluster is not None and not self.static_only

    @property
    def history_folder(self) -> Path | None:
        """The folder of the history; None if this run adds nothing to it."""
        return (
            None if self.history is None or self.against is not None else self.root / self.history
        )

    @property
    def gateway_spec(self) -> str | None:
        """The gateway itself; UsageError for the name of a machine that is not there."""
        return self._spec_of(self.gateway)

    def check_gateways(self, place: str) -> None:
        """UsageError for a machine that is named and not there; `place` names the tables."""
        self._spec_of(self.gateway)
        for pattern, spec in self.models.items():
            self._spec_of(spec.gateway, f'{place}."{printable(pattern)}"]: gateway: ')

    def _spec_of(self, name: str | None, where: str = "") -> str | None:
        if name is None or is_gateway(name):
            return name
        if name in self.gateways:
            return self.gateways[name]
        known = ", ".join(map(printable, self.gateways)) or "no machine"
        raise UsageError(
            f"{where}there is no machine {printable(name)!r}.{suggestion(name, self.gateways)} "
            f"[tool.{PREFIX}.{GATEWAYS}] of {PYPROJECT} has {known}. Add it "
            f'there, as in {printable(name)} = "ssh=pi@host//python=python3", or give a gateway '
            "itself."
        )

    @property
    def runs_beside_baselines(self) -> bool:
        """Whether models run and are compared with their baselines."""
        is_compared = self.against is None and self.update is not UpdateMode.ALL
        return is_compared and not self.static_only

    @property
    def judges_upgrades(self) -> bool:
        """Whether a changed engine is judged in this run."""
        return self.judge_engine_upgrades and self.runs_beside_baselines

    def spec_for(self, path: str) -> CaseSpec | None:
        """The spec in the table of the model at this path, relative to the root and with slashes.

        A table with just that path comes before globs; two globs are a UsageError.
        """
        own = self.models.own(path)
        if own is not None:
            return own
        found = self.models.globs_of(path)
        if len(found) > 1:
            both = " and ".join(f'[tool.modelperf.models."{printable(each)}"]' for each in found)
            raise UsageError(
                f"{PYPROJECT}: {printable(path)} is named by {both}. Make one of "
                "them narrower, or give the model a table with just its path, which then counts "
                "alone."
            )
        return next(iter(found.values()), None)

    def for_model(self, spec: CaseSpec) -> RunSettings:
        """The settings of a model with this spec; only typed settings win over it."""
        engine, options = self.engine_for(spec)
        given: dict[str, Any] = {
            each.field: value
            for each in _OF_MODELS
            if each.key not in self.typed and (value := getattr(spec, each.field)) is not None
        }
        has_seconds = self.has_given_seconds or run.MAX_SECONDS.field in given
        settings = replace(
            self, engine=engine, engine_options=options, has_given_seconds=has_seconds, **given
        )
        settings.check_seconds(lambda setting: setting.key)
        return settings

    def engine_for(self, spec: CaseSpec) -> tuple[str, Mapping[str, str]]:
        """The engine of a model with this spec, and its options.

        Options belong to an engine: if another one is chosen, they are ignored.
        """
        engine = spec.engine or self.engine
        if run.ENGINE.key in self.typed:
            engine = self.engine
        options: Mapping[str, str] = self.engine_options if engine == self.engine else {}
        if spec.engine_options and spec.engine in {None, engine}:
            options = spec.engine_options
        if run.ENGINE_OPTION.key in self.typed:
            options = self.engine_options
        return engine, options
