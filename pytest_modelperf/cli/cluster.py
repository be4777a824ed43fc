"""The options that have a command measure on a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from pytest_modelperf.cli.options import with_options
from pytest_modelperf.cli.output import shown_progress
from pytest_modelperf.cli.setting_options import Command, setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.run_definitions import CLUSTER, MACHINE

if TYPE_CHECKING:
    from pytest_modelperf.cluster.cluster import Cluster
    from pytest_modelperf.cluster.records import ClusterStatus
    from pytest_modelperf.profiler.model_request import SharedRequest
    from pytest_modelperf.profiler.sampling.setup import Setup

_Result = TypeVar("_Result")


class ClusterOptions(Struct, frozen=True):
    """Which cluster measures, and the keys and tags of its machines that may: none mean any."""

    cluster: str | None = None
    machine: tuple[str, ...] = ()

    @property
    def is_given(self) -> bool:
        return self.cluster is not None

    def check(self, *, static: bool = False, roofline: str | None = None) -> None:
        """UsageError for an option that does not go with a cluster; `roofline` asks for one."""
        if self.cluster is None:
            if self.machine:
                raise UsageError("--machine chooses machines of a cluster: give --cluster too.")
            return
        if static:
            raise UsageError("--cluster needs a run of the model: leave out --static or --cluster.")
        if roofline is not None:
            raise UsageError(
                f"a roofline needs the peaks of this machine: leave out {roofline} or --cluster."
            )
        from pytest_modelperf.cluster.extra import check_cluster_extra

        check_cluster_extra("--cluster")

    @contextmanager
    def opened(self, *setups: Setup, plugins: Sequence[str]) -> Iterator[Cluster]:
        """The cluster, which has machines that may measure with these setups and plugins."""
        from pytest_modelperf.cluster.cluster import open_cluster
        from pytest_modelperf.cluster.text import status_line
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
        from pytest_modelperf.profiler.worker.gateway import is_this_python

        if any(setup.engine.name == CALLABLE_ENGINE for setup in setups):
            raise UsageError("--cluster measures models: leave it out to measure a function.")
        # Another interpreter of a machine has an engine of its own.
        engines = {setup.engine.name for setup in setups if is_this_python(setup.spec)}
        with shown_progress() as line:

            def show(status: ClusterStatus) -> None:
                line.show(status_line(status, shutil.get_terminal_size().columns - 1))

            with open_cluster(self.cluster or "", show, on_warning=line.warn) as cluster:
                for engine in sorted(engines) or (None,):
                    cluster.require([self.machine], engine, plugins)
                yield cluster

    def run(self, asked: SharedRequest[_Result], *setups: Setup, plugins: Sequence[str]) -> _Result:
        """The result of a request from the machines of the cluster."""
        with self.opened(*setups, plugins=plugins) as cluster:
            from pytest_modelperf.cluster.requests import run_on_cluster

            return run_on_cluster(cluster, asked, plugins=plugins, machines=self.machine)


def cluster_options(command: Command) -> Command:
    """The options about a cluster."""
    return with_options(
        command,
        setting_option(CLUSTER, more="`modelperf worker` starts them."),
        setting_option(MACHINE),
    )
