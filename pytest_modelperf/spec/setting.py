"""The definition of a setting: its names, its kind, its help, and where users may give it.

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
    mostly what happens without the setting. `usual` is what is used then, as text. `default` and
    `example` are values of a table; `example` is written in TOML. `unit` is the unit of a number.
    `guide` is the page of the docs with more.

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

    def refusal(self, where: str) -> UsageError:
        """Make the error for a file with a setting that is only allowed on the command line."""
        from pytest_modelperf.errors import UsageError

        return UsageError(
            f"{where} can only be given on the command line, so that no run changes baselines "
            f"unasked: pytest --modelperf {self.flag}"
        )
