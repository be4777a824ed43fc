"""What the doctor found, as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.profiler.facts_document import engine_to_json, machine_to_json
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import Checkup
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms, number


def dump_checkups(machine: MachineFacts, checkups: Sequence[Checkup]) -> str:
    """What the doctor found, as JSON text."""
    return dump_document(
        {
            "schema": SCHEMA,
            "machine": machine_to_json(machine),
            "checkups": [_checkup(checkup) for checkup in checkups],
        }
    )


def _checkup(checkup: Checkup) -> dict[str, Json]:
    ratio = checkup.ratio
    return {
        "model": checkup.model,
        "engine": engine_to_json(checkup.engine),
        "cores": checkup.cores,
        "processors": None if checkup.processors is None else list(checkup.processors),
        "seconds": checkup.seconds,
        "rounds": checkup.rounds,
        "p50_ms": ms(checkup.median_ns),
        "ratio": {
            "value": number(ratio.value),
            "interval": None
            if ratio.low is None or ratio.high is None
            else [number(ratio.low), number(ratio.high)],
        },
        "spread": {
            "inferences": number(checkup.spread.inferences),
            "sessions": number(checkup.spread.sessions),
        },
        "level": checkup.level,
        "power": checkup.power,
        "outlook": [
            {
                "rounds": look.rounds,
                "seconds": look.seconds,
                "detectable": number(look.change),
            }
            for look in checkup.outlook
        ],
        "noise": checkup.noise,
    }
