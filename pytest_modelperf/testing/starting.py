"""The start of a run that profiles models.

Workers start before the modules of the run are imported, which takes about as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.files.opened import require_open_files
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.spec.run_definitions import BASELINE_PYTHON, CLUSTER, MACHINE, RECORDED
from pytest_modelperf.systems.process import OWN_PROCESS
from pytest_modelperf.testing.current_run import RUN
from pytest_modelperf.testing.pytest_internals import distributes, leaves_tests_out
from pytest_modelperf.testing.settings import is_empty, read_run_settings, settled_folder

if TYPE_CHECKING:
    from pytest_modelperf.spec.sources import RunSettings


def start(config: pytest.Config) -> None:
    """Start a run that profiles, or raise pytest.UsageError for invalid settings."""
    early = None
    try:
        require_open_files()
        settings = read_run_settings(config)
        if _needs_plans(config, settings):
            from pytest_modelperf.profiler.sampling.setup import Setup
            from pytest_modelperf.profiler.shared_worker import SharedTime, SharedWorkers

            early = SharedWorkers(SharedTime.of_machine())
            config.add_cleanup(early.end)
            # The number of cores of nearly all cases.
            early.start(Setup(options=settings.engine_options, limit_s=settings.timeout), 1, 1)
        # Imported now, because this takes about as long as the worker takes to start.
        from pytest_modelperf.testing.ending import check_targets
        from pytest_modelperf.testing.hooks import RunHooks, check_sendable
        from pytest_modelperf.testing.model_collection import ModelCollection

        if settings.against is not None:
            from pytest_modelperf.testing.older import check_against

            check_against(settings.against, settings.root)
        if settings.baseline_python is not None:
            from pytest_modelperf.profiler.worker.gateway import interpreter_spec

            interpreter_spec(settings.baseline_python, BASELINE_PYTHON.flag)
        if settings.uses_cluster:
            from pytest_modelperf.cluster.places import check_cluster_extra

            check_cluster_extra(CLUSTER.flag)
            from pytest_modelperf.testing.on_cluster import check_cluster

            check_cluster(config, str(settings.cluster))
        elif settings.cluster is None and MACHINE.key in settings.typed:
            raise UsageError(
                f"{MACHINE.flag} chooses machines of a cluster: give {CLUSTER.flag} ADDRESS too."
            )
        if settings.baseline_requirements:
            from pytest_modelperf.environments.installing import read_requirements

            given = settings.baseline_requirements
            read_requirements([each for each in given if each != RECORDED] or [settings.engine])
        hooks = RunHooks(config, settings, early)
        collection = ModelCollection(config, settings, hooks.known)
        collection.add_models()
        check_targets(settings, config.invocation_params.dir, collection.named)
        if distributes(config) and not hasattr(config, "workerinput"):
            check_sendable(
                [
                    *config.invocation_params.args,
                    config.rootpath,
                    config.invocation_params.dir,
                    *collection.find_reached(),
                ]
            )
    except ModelPerfError as error:
        from pytest_modelperf.testing.wording import in_table

        raise pytest.UsageError(in_table(error)) from None
    config.stash[RUN] = hooks.run
    config.pluginmanager.register(collection, "modelperf-collection")
    config.pluginmanager.register(hooks, "modelperf-run")


def _needs_plans(config: pytest.Config, settings: RunSettings) -> bool:
    """Whether this run probably makes plans on this machine: nothing is known of its models."""
    is_here = settings.engine == DEFAULT_ENGINE and settings.gateway is None
    if settings.uses_cluster or not settings.runs_beside_baselines or not is_here:
        return False
    if leaves_tests_out(config) or distributes(config) or is_empty(settings.baseline_dir):
        return False
    # The only processor has to import what the run needs.
    if len(OWN_PROCESS.allowed_processors() or ()) == 1:
        return False
    known = None if settings.no_cache else settled_folder()
    return known is None or is_empty(known)
