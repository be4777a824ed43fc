"""An extension that brings the engines of the tests."""

from __future__ import annotations

from pytest_modelperf.profiler.hookspecs import Engines


def modelperf_register_engines(engines: Engines) -> None:
    engines.register("faulty", module="tests.support.faulty", install="pip install faulty")
    engines.register("timed", module="tests.support.timed")
    engines.register("planned", module="tests.support.planned")
    engines.register("lost", module="tests.support.lost_engine", install="pip install lost")
