"""How cases are measured: on which engine, where, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_modelperf.errors import UsageError, Wording
from pytest_modelperf.spec.run_definitions import MAX_SECONDS, MIN_SECONDS, WARMUP_SECONDS
from pytest_modelperf.spec.setting import Setting

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.sampling.setup import Setup


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
        # Look it up first, to report a missing engine without the wait for scipy.
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
