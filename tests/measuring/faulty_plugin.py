"""An extension that brings the engines of the tests."""

from __future__ import annotations

from pytest_modelperf.profiler.hookspecs import Engines


def modelperf_register_engines(engines: Engines) -> None:
    engines.register("faulty", module="tests.measuring.faulty", install="pip install faulty")
    engines.register("timed", module="tests.measuring.timed")
    engines.register("lost", module="tests.measuring.lost_engine", install="pip install lost")
