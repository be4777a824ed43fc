"""The definition of a setting, and the settings of a test run, each defined only here.

The plugin imports this module in every pytest run, so it imports almost nothing.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_modelperf.errors import UsageError

PREFIX = "modelperf"


class Place(enum.Enum):
    """A place where users may give a setting.

    `OPTION` is the command line of pytest, `TABLE` is `[tool.modelperf]` and the ini keys of
    pytest, `MODEL` is the table of a model, `CALL` is the marker `perf_case` and a call of the
    fixture, and `COMMAND` is the command line of `modelperf`.
    """

    OPTION = "option"
    TABLE = "table"
    MODEL = "model"
    CALL = "call"
    COMMAND = "command"


RUN = (Place.OPTION, Place.TABLE)
MODEL = (Place.MODEL, Place.CALL)


class Setting:
    """One setting: its names, its kind, its default, its help, and where users may give it.

    `kind` names the entry of `kinds.KINDS` that reads its values. `help` is a clause without a
    full stop, with code between backticks. `typed_help` replaces it on the command line of
    `modelperf`, if values have another form there. `note` adds to the help of the pytest option,
    mostly what happens without the setting. `usual` is the value used then, as text. `default` and
    `example` are values of a table; `example` is written in TOML. `unit` is the unit of a number.
    `guide` is a page of the docs with details.

    A setting without a `metavar` is a flag. `implied` is the value of an option that is given
    without one. A setting that `has_result` asks for something that the user would miss if no
    model were profiled.

    All names are `key`, unless another one is given: `table_key` in tables, `option` after
    `--modelperf-`, `word` in a marker or a call, `command` after `--` of the command `modelperf`,
    and `field` in `RunSettings` and `CaseSpec`.
    """

    # Not a dataclass, because creating one would delay every pytest run.
    def __init__(  # noqa: PLR0913  # one for each fact about a setting
        self,
        key: str,
        kind: str,
        help: str,  # noqa: A002  # as argparse calls it
        *,
        places: Sequence[Place],
        metavar: str | None = None,
        default: object = None,
        unit: str = "",
        note: str = "",
        usual: str = "",
        example: str = "",
        typed_help: str = "",
        guide: str = "",
        is_repeatable: bool = False,
        has_result: bool = False,
        implied: str | None = None,
        table_key: str | None = None,
        option: str | None = None,
        word: str | None = None,
        command: str | None = None,
        field: str | None = None,
    ) -> None:
        self.key = key
        self.kind = kind
        self.help = help
        self.places = places
        self.metavar = metavar
        self.default = default
        self.unit = unit
        self.note = note
        self.usual = usual
        self.example = example
        self.typed_help = typed_help or help
        self.guide = guide
        self.is_repeatable = is_repeatable
        self.has_result = has_result
        self.implied = implied
        # A table has all values of a repeatable option under one key, which is a plural.
        self.table_key = table_key or (f"{key}s" if is_repeatable else key)
        self.option = option or key
        self.word = word or self.table_key
        self.command = command or key
        self.field = field or self.table_key

    def __repr__(self) -> str:
        return f"<setting {self.table_key}>"

    def stands_in(self, place: Place) -> bool:
        return place in self.places

    @property
    def is_in_files(self) -> bool:
        """Whether it may be an ini key and a key of `[tool.modelperf]`."""
        return self.stands_in(Place.TABLE)

    @property
    def flag(self) -> str:
        """The option of pytest."""
        return f"--{PREFIX}-{self.option.replace('_', '-')}"

    @property
    def ini(self) -> str:
        return f"{PREFIX}_{self.key}"

    @property
    def command_flag(self) -> str:
        """The option of the command `modelperf`."""
        return f"--{self.command.replace('_', '-')}"

    @property
    def default_text(self) -> str:
        """The default as a user would type it, or an empty text if there is none."""
        return f"{self.default}" if self.default else ""

    @property
    def option_help(self) -> str:
        """The help of the pytest option and of the ini key."""
        text = f"{self.help}; {self.note}" if self.note else self.help
        return text.replace("`", "")

    def refusal(self, place: str) -> UsageError:
        """Make the error for a file with a setting that is only allowed on the command line."""
        from pytest_modelperf.errors import UsageError

        return UsageError(
            f"{place} can only be given on the command line, so that no run changes baselines "
            f"unasked: pytest --modelperf {self.flag}"
        )


# The requirement that means the engine version of the baseline.
RECORDED = "recorded"


class UpdateMode(enum.Enum):
    """The cases whose baselines are written: all, new ones, or improved ones."""

    ALL = "all"
    NEW = "new"
    IMPROVED = "improved"


TOLERANCE = Setting(
    "tolerance",
    "tolerance",
    "how much slower a model may be, as a share: `0.03`, or by figure, "
    "`p50=0.02,macs=0.01,load=0.2`",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="SHARE",
    default=0.03,
    example="{p50 = 0.02, p99 = 0.1, macs = 0.01, load = 0.2}",
    guide="budgets.md#a-budget-or-a-tolerance",
    field="tolerances",
)
MEASURE = Setting(
    "measure",
    "measure",
    "which cases run in turn with their baselines: `changed`, those with other kernels now, or "
    "`always`, all",
    places=(*RUN, *MODEL),
    metavar="changed|always",
    default="changed",
    guide="parts.md",
)
OUTPUT_SKETCH = Setting(
    "output_sketch",
    "flag",
    "record a small sketch of the outputs in the baseline, and compare the model's outputs with it",
    places=(*RUN, *MODEL),
    default=False,
    guide="upgrades.md#a-sketch-of-the-outputs",
)
MAX_SECONDS = Setting(
    "max_seconds",
    "seconds",
    "the longest that the rounds of a case may take",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="S",
    default=10,
    unit="seconds",
    note="unless it is given, a slow model may take up to 60",
)
WARMUP_SECONDS = Setting(
    "warmup_seconds",
    "seconds",
    "the shortest warm-up of each session, within the longest time of a case",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="S",
    unit="seconds",
    usual="until it is steady",
    guide="measuring.md",
    command="warmup",
)
MIN_SECONDS = Setting(
    "min_seconds",
    "seconds",
    "the least that the rounds of a case take if it is measured alone",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="S",
    unit="seconds",
    note="a comparison ends when it is decided",
    usual="until the median is precise",
)
TIMEOUT = Setting(
    "timeout",
    "seconds",
    "give up on a case whose worker is silent for this time",
    places=(*RUN, Place.COMMAND),
    metavar="S",
    default=300,
    unit="seconds",
)
ENGINE = Setting(
    "engine",
    "text",
    "what runs a model: `onnxruntime`, `openvino`, or an engine of an extension",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="NAME",
    default="onnxruntime",
    guide="engines.md",
)
ENGINE_OPTION = Setting(
    "engine_option",
    "pairs",
    "an option of the engine, as in `graph_optimization_level=basic`; repeatable",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="KEY=VALUE",
    default={},
    example='{graph_optimization_level = "basic"}',
    guide="engines.md",
    is_repeatable=True,
)
GATEWAY = Setting(
    "gateway",
    "gateway",
    "the interpreter or machine of a model: a name of `[tool.modelperf.machines]`, "
    "`popen//python=PATH` for another interpreter, `ssh=HOST` for another machine",
    places=(*RUN, *MODEL),
    metavar="NAME|SPEC",
    usual="this machine",
    guide="#machines",
)
STATIC_ONLY = Setting(
    "static_only",
    "flag",
    "only count: no engine runs, and no latency is measured",
    places=(*RUN, Place.COMMAND),
    default=False,
    command="static",
)
AGAINST = Setting(
    "against",
    "text",
    "compare with the model at this path, or with the same path in this git revision",
    places=RUN,
    metavar="PATH|REF",
    guide="baselines.md#without-a-baseline",
)
BASELINE_PYTHON = Setting(
    "baseline_python",
    "place",
    "run the baseline's side in this Python",
    places=RUN,
    metavar="PATH",
    guide="ci.md#an-upgrade-of-the-engine",
)
BASELINE_REQUIREMENT = Setting(
    "baseline_requirement",
    "texts",
    "run the baseline's side with this package, as in `onnxruntime==1.22.0`, or with the "
    "recorded version of the engine: `recorded`; repeatable",
    places=RUN,
    metavar="REQ",
    guide="upgrades.md#the-baseline-on-another-version",
    is_repeatable=True,
)
JUDGE_UPGRADES = Setting(
    "judge_engine_upgrades",
    "flag",
    "if the engine changed since a baseline was recorded, also judge the engine: the twin on "
    "both versions",
    places=RUN,
    default=False,
    guide="upgrades.md#judging-an-upgrade",
    option="judge_upgrades",
)
BASELINE_DIR = Setting(
    "baseline_dir",
    "path",
    "the folder of the baselines, relative to the project",
    places=RUN,
    metavar="DIR",
    default="baselines",
    guide="baselines.md",
)
UPDATE_BASELINE = Setting(
    "update_baseline",
    "update",
    "record baselines: of all cases, of new ones, or of improved ones",
    places=(Place.OPTION,),
    metavar="all|new|improved",
    guide="baselines.md#recording",
    implied=UpdateMode.ALL.value,
    field="update",
    has_result=True,
)
UNCOMMITTED = Setting(
    "uncommitted",
    "flag",
    "record programs whose files will be committed together with the baseline",
    places=RUN,
    default=False,
    guide="baselines.md#recording",
)
STRICT = Setting(
    "strict",
    "flag",
    "fail cases that are inconclusive, have no baseline, or need more cores than this machine has",
    places=RUN,
    default=False,
    guide="ci.md#strict",
    has_result=True,
)
PRUNE = Setting(
    "prune",
    "flag",
    "delete the baselines that no test uses any more",
    places=(Place.OPTION,),
    default=False,
    guide="baselines.md#in-git",
    has_result=True,
)
NO_CACHE = Setting(
    "no_cache",
    "flag",
    "do not reuse earlier runs: make plans and the models that functions return again",
    places=RUN,
    default=False,
    guide="parts.md#what-the-next-run-takes-from-this-one",
)
JSON = Setting(
    "json",
    "place",
    "write everything about the run as JSON",
    places=RUN,
    metavar="FILE",
    guide="json.md#a-run",
    has_result=True,
)
MARKDOWN = Setting(
    "markdown", "place", "write a report in Markdown", has_result=True, places=RUN, metavar="FILE"
)
HTML = Setting(
    "html",
    "place",
    "write a page with charts and tables of layers, for a browser",
    places=RUN,
    metavar="FILE",
    guide="html-report.md",
    has_result=True,
)
BENCHMARK_JSON = Setting(
    "benchmark_json",
    "place",
    "write the samples in the JSON of pytest-benchmark",
    places=RUN,
    metavar="FILE",
    has_result=True,
)
BENCHER_JSON = Setting(
    "bencher_json",
    "place",
    "write the figures of each case in the Bencher Metric Format",
    places=RUN,
    metavar="FILE",
    guide="ci.md#other-services",
    has_result=True,
)
HISTORY = Setting(
    "history",
    "place",
    "add a line for each case to the history in this folder, relative to the project",
    places=RUN,
    metavar="DIR",
    guide="history.md",
    has_result=True,
)
TRACE = Setting(
    "trace",
    "place",
    "write a trace of each case into this folder",
    places=RUN,
    metavar="DIR",
    has_result=True,
)
CLUSTER = Setting(
    "cluster",
    "text",
    "measure on the machines of a Dask cluster: `tcp://host:8786`, a scheduler file, or `local:4`",
    places=(*RUN, Place.COMMAND),
    metavar="ADDRESS",
    guide="cluster.md#tests",
)
MACHINE = Setting(
    "machine",
    "names",
    "only on machines of the cluster with one of these keys or tags",
    places=(*RUN, Place.COMMAND),
    metavar="NAME[,NAME...]",
    guide="cluster.md#tests",
)

# In the order of their definition.
RUN_SETTINGS = tuple(each for each in globals().copy().values() if isinstance(each, Setting))
