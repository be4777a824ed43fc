"""A tuning as JSON, with the code to paste."""

from __future__ import annotations

from typing import Any

from pytest_modelperf.report.document import dump_document
from pytest_modelperf.tuning.pasted import engine_options_table, session_code
from pytest_modelperf.tuning.records import TUNING, TunedCase, Tuning


def dump_tuning(tuning: Tuning) -> str:
    """The tuning as JSON text."""
    document = TUNING.of(tuning)
    for case, found in zip(tuning.cases, document["cases"], strict=True):
        if found["winner"] is not None:
            found["winner"] |= _pasted(tuning, case)
    return dump_document(document)


def _pasted(tuning: Tuning, case: TunedCase) -> dict[str, Any]:
    facts = case.winner_engine
    if facts is None:
        return {}
    return {
        "python": session_code(facts, tuning.model.name, case.case.cores),
        "table": engine_options_table(case, facts.name),
    }
