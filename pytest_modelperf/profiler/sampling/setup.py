"""The settings with which cases are measured."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.errors import PLAIN, Wording
from pytest_modelperf.profiler.engines.source import BUILT_IN, DEFAULT_ENGINE, EngineModule
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.worker.client import DEFAULT_LIMIT_S
from pytest_modelperf.profiler.worker.gateway import LOCAL


class Setup(Struct, frozen=True, kw_only=True):
    """The settings of measuring: on which engine, where, and for how long.

    `spec` describes a gateway; `limit_s` is how long a worker may be silent. A duet of a slow model
    may take `stretch_seconds` instead of the policy's `max_seconds`. `wording` names the settings
    in the reason why a case could not be measured.
    """

    engine: EngineModule = BUILT_IN[DEFAULT_ENGINE]
    options: Mapping[str, str] = field(default_factory=dict)
    spec: str = LOCAL
    policy: SamplingPolicy = field(default_factory=SamplingPolicy)
    limit_s: float = DEFAULT_LIMIT_S
    stretch_seconds: float | None = None
    wording: Wording = PLAIN
