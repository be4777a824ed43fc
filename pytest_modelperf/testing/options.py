"""The options of a test run: their names, their help, and how their values are read.

The plugin imports this in every run of every user, so it imports next to nothing: the modules that
read values are imported when a value is read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pytest_modelperf.errors import UsageError
    from pytest_modelperf.testing import config_values
else:

    class _ConfigValues:
        """Stands for the module `config_values`, and imports it when a function is called."""

        def __getattr__(self, name: str) -> Callable[[object, str], object]:
            def call(value: object, where: str) -> object:
                from pytest_modelperf.testing import config_values

                return getattr(config_values, name)(value, where)

            return call

    config_values = _ConfigValues()

PREFIX = "modelperf"
# The requirement for the version of the engine that a baseline was recorded with.
RECORDED = "recorded"

_T_co = TypeVar("_T_co", covariant=True)


class UpdateMode(enum.Enum):
    """The cases whose baselines are written: all, those without one, or those that improved."""

    ALL = "all"
    NEW = "new"
    IMPROVED = "improved"


class Option(Generic[_T_co]):
    """One setting, the same as an option of the command line, as an ini key and in the table.

    `parse` turns typed text into the value that a table would hold, `read` turns that into the
    setting. `default` is a value of a table. An option without a `metavar` is a flag. `implied` is
    the value of an option that is given without one. `name` is its name on the command line, where
    that is shorter than the key.
    """

    # Not a dataclass: every pytest run would wait until it is made.
    def __init__(  # noqa: PLR0913  # one for each thing that there is to know of it
        self,
        key: str,
        *,
        help: str,  # noqa: A002  # as argparse calls it
        read: Callable[[object, str], _T_co],
        metavar: str | None = None,
        default: object = None,
        parse: Callable[[object, str], object] = config_values.keep,
        is_repeatable: bool = False,
        is_in_files: bool = True,
        implied: str | None = None,
        name: str | None = None,
    ) -> None:
        self.key = key
        self.name = name or key
        self.help = help
        self.read = read
        self.metavar = metavar
        self.default = default
        self.parse = parse
        self.is_repeatable = is_repeatable
        self.is_in_files = is_in_files
        self.implied = implied

    def __repr__(self) -> str:
        return f"<option {self.flag}>"

    @property
    def flag(self) -> str:
        return f"--{PREFIX}-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        return f"{PREFIX}_{self.key}"

    @property
    def table_key(self) -> str:
        """The key of `[tool.modelperf]`, which has all values of a repeatable option."""
        return f"{self.key}s" if self.is_repeatable else self.key

    @property
    def default_text(self) -> str:
        """The default as a user would type it; empty if there is none."""
        return f"{self.default}" if self.default else ""

    def refusal(self, where: str) -> UsageError:
        """The error for a file with a setting that can only be typed."""
        from pytest_modelperf.errors import UsageError

        return UsageError(
            f"{where} can only be typed, so that no run changes baselines unasked: "
            f"pytest --modelperf {self.flag}"
        )


def _read_update(value: object, where: str) -> UpdateMode | None:
    if value is None:
        return None
    for mode in UpdateMode:
        if value == mode.value:
            return mode
    from pytest_modelperf.errors import UsageError
    from pytest_modelperf.text.words import shown

    raise UsageError(
        f"{where} takes all, new or improved, not {shown(value)}. "
        f"In front of a file or a test, write {where}=all."
    )


TOLERANCE = Option(
    key="tolerance",
    help="how much slower a model may be, as a share: 0.03, or p50=0.02,macs=0.01,load=0.2",
    metavar="SHARE",
    default=0.03,
    read=config_values.read_tolerance,
)
MEASURE = Option(
    key="measure",
    help="changed: judge by the plan where the engine runs the same kernels, and by what differs "
    "otherwise; always: run both models in turn all the same",
    metavar="changed|always",
    default="changed",
    read=config_values.read_measure,
)
MAX_SECONDS = Option(
    key="max_seconds",
    help="the longest that the rounds of a case may take; where nobody says, a slow model may take "
    "up to 60",
    metavar="S",
    default=10,
    parse=config_values.parse_number,
    read=config_values.read_seconds,
)
WARMUP_SECONDS = Option(
    key="warmup_seconds",
    help="warm up each session for at least so many seconds, within the longest time of a case; "
    "where nobody says, until it is steady",
    metavar="S",
    parse=config_values.parse_number,
    read=config_values.read_optional_seconds,
)
MIN_SECONDS = Option(
    key="min_seconds",
    help="the least that the rounds of a case may take that is measured alone; a comparison ends "
    "when it is decided",
    metavar="S",
    parse=config_values.parse_number,
    read=config_values.read_optional_seconds,
)
TIMEOUT = Option(
    key="timeout",
    help="give a case up when its worker is silent for so many seconds",
    metavar="S",
    default=300,
    parse=config_values.parse_number,
    read=config_values.read_seconds,
)
ENGINE = Option(
    key="engine",
    help="what runs the models: onnxruntime, openvino, or one of an extension",
    metavar="NAME",
    default="onnxruntime",
    read=config_values.read_text,
)
ENGINE_OPTION = Option(
    key="engine_option",
    help="an option of the engine; repeatable",
    metavar="KEY=VALUE",
    default={},
    parse=config_values.parse_pairs,
    read=config_values.read_pairs,
    is_repeatable=True,
)
GATEWAY = Option(
    key="gateway",
    help="where the models run: a name of [tool.modelperf.machines], popen//python=PATH for "
    "another interpreter, ssh=HOST or socket=HOST:PORT for another machine",
    metavar="NAME|SPEC",
    read=config_values.read_optional_gateway,
)
STATIC_ONLY = Option(
    key="static_only",
    help="count only: no engine runs, and nothing is said of latency",
    default=False,
    parse=config_values.parse_flag,
    read=config_values.read_flag,
)
AGAINST = Option(
    key="against",
    help="compare with the model at this path, or with the same path in this git revision",
    metavar="PATH|REF",
    read=config_values.read_optional_text,
)
BASELINE_PYTHON = Option(
    key="baseline_python",
    help="run the baseline's side in this Python",
    metavar="PATH",
    read=config_values.read_optional_text,
)
BASELINE_REQUIREMENT = Option(
    key="baseline_requirement",
    help="run the baseline's side with this package, as in onnxruntime==1.22.0, or with the "
    "recorded version of the engine: recorded; repeatable",
    metavar="REQ",
    read=config_values.read_optional_texts,
    is_repeatable=True,
)
JUDGE_UPGRADES = Option(
    key="judge_engine_upgrades",
    name="judge_upgrades",
    help="where the engine changed since a baseline was recorded, judge also the engine: the twin "
    "on both versions",
    default=False,
    parse=config_values.parse_flag,
    read=config_values.read_flag,
)
BASELINE_DIR = Option(
    key="baseline_dir",
    help="the folder of the baselines, relative to the project",
    metavar="DIR",
    default="baselines",
    read=config_values.read_path,
)
UPDATE_BASELINE = Option(
    key="update_baseline",
    help="record baselines: of all cases, of new ones, or of improved ones",
    metavar="all|new|improved",
    read=_read_update,
    is_in_files=False,
    implied=UpdateMode.ALL.value,
)
STRICT = Option(
    key="strict",
    help="fail what is inconclusive or has no baseline",
    default=False,
    parse=config_values.parse_flag,
    read=config_values.read_flag,
)
PRUNE = Option(
    key="prune",
    help="delete the baselines that no test uses any more",
    default=False,
    parse=config_values.parse_flag,
    read=config_values.read_flag,
    is_in_files=False,
)
JSON = Option(
    key="json",
    help="write everything about the run as JSON",
    metavar="FILE",
    read=config_values.read_optional_text,
)
MARKDOWN = Option(
    key="markdown",
    help="write a report in Markdown",
    metavar="FILE",
    read=config_values.read_optional_text,
)
HTML = Option(
    key="html",
    help="write a page with charts and tables of layers, for a browser",
    metavar="FILE",
    read=config_values.read_optional_text,
)
BENCHMARK_JSON = Option(
    key="benchmark_json",
    help="write the samples in the JSON of pytest-benchmark",
    metavar="FILE",
    read=config_values.read_optional_text,
)
BENCHER_JSON = Option(
    key="bencher_json",
    help="write the figures of each case in the Bencher Metric Format",
    metavar="FILE",
    read=config_values.read_optional_text,
)
HISTORY = Option(
    key="history",
    help="add a line for each case to the history in this folder, relative to the project",
    metavar="DIR",
    read=config_values.read_optional_text,
)
TRACE = Option(
    key="trace",
    help="write a trace of each case into this folder",
    metavar="DIR",
    read=config_values.read_optional_text,
)
CLUSTER = Option(
    key="cluster",
    help="measure on the machines of a Dask cluster: tcp://host:8786, a scheduler file, or local:4",
    metavar="ADDRESS",
    read=config_values.read_optional_text,
)
MACHINE = Option(
    key="machine",
    help="only on machines of the cluster with one of these keys or tags",
    metavar="NAME,...",
    read=config_values.read_names,
)

# Options with a visible result. Without --modelperf they have none, and a line says so.
MISSED: tuple[Option[object], ...] = (
    UPDATE_BASELINE,
    STRICT,
    PRUNE,
    JSON,
    MARKDOWN,
    HTML,
    BENCHMARK_JSON,
    BENCHER_JSON,
    HISTORY,
    TRACE,
)
OPTIONS: tuple[Option[object], ...] = (
    TOLERANCE,
    MEASURE,
    MAX_SECONDS,
    WARMUP_SECONDS,
    MIN_SECONDS,
    TIMEOUT,
    ENGINE,
    ENGINE_OPTION,
    GATEWAY,
    STATIC_ONLY,
    AGAINST,
    BASELINE_PYTHON,
    BASELINE_REQUIREMENT,
    JUDGE_UPGRADES,
    BASELINE_DIR,
    UPDATE_BASELINE,
    STRICT,
    PRUNE,
    JSON,
    MARKDOWN,
    HTML,
    BENCHMARK_JSON,
    BENCHER_JSON,
    HISTORY,
    TRACE,
    CLUSTER,
    MACHINE,
)
