"""A request to measure the gain of variants of a model."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import Watch, read_facts
from pytest_modelperf.profiler.model_request import ModelRun, Parts, only_result
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.whatif.quantizing import Quantizer, quantize
from pytest_modelperf.whatif.records import Variant, WhatIf
from pytest_modelperf.whatif.speedups import check_variants
from pytest_modelperf.whatif.variants import VariantTrial, variants_gate


class WhatIfRequest(Struct, frozen=True):
    """A request to measure every variant of a model at every case, in turn with the model."""

    model: ModelRun
    request: ProfileRequest
    variants: tuple[Variant, ...]
    # Shares of pruning that are estimated from the measured ones around them.
    estimates: tuple[float, ...] = ()

    def run(
        self, extensions: Extensions, watch: Watch = lambda _: None, quantizer: Quantizer = quantize
    ) -> WhatIf:
        """Make the variants and measure them, in this process."""
        check_variants(self.variants, self.estimates)
        begun, setup = time.monotonic(), self.model.setup
        models = Model.of_request(open_model(self.model.source), self.request, extensions)
        total = len(models) * len(self.request.cores) * len(self.variants)
        facts = read_facts(models[0], total, watch)
        gate = variants_gate(total, setup.policy.max_seconds)
        trial = VariantTrial(setup, gate, self.variants, self.estimates, total, watch, quantizer)
        cases = [case for model in models for case in trial.cases_of(model)]
        ran = [case.baseline.measured for case in cases if case.baseline.measured is not None]
        return WhatIf(
            model=facts,
            machine=next((m.machine for m in ran if m.machine), None) or describe_machine(),
            engine=ran[0].engine if ran else None,
            cases=tuple(cases),
            confidence=gate.confidence,
            seconds=time.monotonic() - begun,
        )

    def split(self, extensions: Extensions) -> Parts[WhatIf]:  # noqa: ARG002  # as for all requests
        """Return the whole request as one part, because its levels run in turn and are compared."""
        check_variants(self.variants, self.estimates)
        facts = model_facts(open_model(self.model.source), reads_all=True)

        def join(found: Sequence[WhatIf | ModelPerfError]) -> WhatIf:
            return replace(only_result(found), model=facts)

        return Parts(((f"what-if of {facts.name}", self),), WhatIf, join)
