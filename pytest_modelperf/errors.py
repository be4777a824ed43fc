"""All errors that a user can do something about.

A message says what is wrong, where, what was expected, and what to type next. The core raises these
errors; the plugin and the command show them in their own way. The subclasses differ by what the
user can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal


class Wording:
    """The names of settings in remedies and advice.

    The plugin, the command and the Python interface override them with what their users type.
    `names` has the name of each setting; `record` is the command that records baselines.
    """

    names: Mapping[str, str] = {
        "baseline_python": "the Python of the baseline",
        "batch": "the batch size",
        "cores": "the number of cores",
        "dims": "sizes of dimensions",
        "engine_option": "an engine option",
        "inputs": "inputs",
        "json": "the JSON report",
        "max_seconds": "a longer time limit",
        "state": "PAST=PRESENT",
        "static": "a static profile",
        "timeout": "a longer timeout",
        "tolerance": "a tolerance",
    }

    def __init__(self, record: str = "pytest --modelperf --modelperf-update-baseline") -> None:
        self.record = record

    def sizes(self, dims: Sequence[str]) -> str:
        """Return the text to type to give each of these dimensions a size."""
        return ", ".join(f"{name}=SIZE" for name in dims)

    def value(self, setting: str, value: str) -> str:
        """Return the text to type to give a setting this value."""
        return f"{self.names[setting]} {value}"


# The neutral wording, used when an error is shown without a caller's wording.
PLAIN = Wording()


class Remedy:
    """An action by which a user can fix an error.

    `text` names settings in braces, as in `Leave {batch} out.`, and each `Wording` puts in its own
    names for them. The other arguments say what a setting should be: the dimensions that need a
    size, an input such as `ids:int64:1x64`, an engine option such as `device=CPU`. Names in them
    are already escaped.
    """

    def __init__(
        self,
        text: str,
        *,
        dims: Sequence[str] = (),
        inputs: str | None = None,
        engine_option: str | None = None,
    ) -> None:
        self.text = text
        self.dims = tuple(dims)
        self.values = {
            name: value
            for name, value in (("inputs", inputs), ("engine_option", engine_option))
            if value is not None
        }

    def worded(self, wording: Wording) -> str:
        words = dict(wording.names)
        words |= {name: wording.value(name, value) for name, value in self.values.items()}
        if self.dims:
            words["dims"] = wording.sizes(self.dims)
        return self.text.format_map(words)


class ModelPerfError(Exception):
    """The base class of all errors that a user is meant to read."""

    exit_code = 2

    def __init__(self, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        # Lines below the message.
        self.details: tuple[str, ...] = ()
        # The `graph.load.Asked` for which other sizes or values may help, if there is one.
        self.asked: object = None

    def __str__(self) -> str:
        return self.worded(PLAIN)

    def worded(self, wording: Wording) -> str:
        """Return the whole message, with the names of settings that this wording has."""
        remedy = "" if self.remedy is None else f" {self.remedy.worded(wording)}"
        return "\n".join([f"{self.message}{remedy}", *self.details])


class UsageError(ModelPerfError):
    """The request is wrong or contradicts itself: change it."""


class AbsentFileError(UsageError):
    """A named file does not exist: correct the path, or make the file."""


class EngineOptionError(UsageError):
    """An engine refuses its options: change them, or install what they name."""


class ModelError(ModelPerfError):
    """The model file is broken, unsupported or unreadable: give another one."""


class MisfitError(ModelError):
    """The shapes of a model do not fit together at the node that `where` names.

    `sizes` are those of the axes in which the inputs of the node differ.
    """

    def __init__(
        self,
        message: str,
        remedy: Remedy | None = None,
        *,
        # Optional, because pickle passes only the message and sets the attributes afterwards.
        where: str = "",
        sizes: Sequence[int] = (),
    ) -> None:
        super().__init__(message, remedy)
        self.where = where
        self.sizes = tuple(sizes)


class BindingError(ModelPerfError):
    """A dimension of the model has no size, or cannot have the given one: bind it."""


class OpenSizesError(BindingError):
    """Dimensions of the model have no size: give each of them one."""


class ExtensionError(ModelPerfError):
    """A plugin registered something unusable, or its counter failed: fix the plugin."""


class OutputError(ModelPerfError):
    """A result could not be written: give another place."""


class MeasureError(ModelPerfError):
    """A case could not be measured: its worker crashed, hung, or refused the model.

    If two models run in turn, `side` is the one that failed, `before` or `after`, or None if that
    is unknown.
    """

    exit_code = 3
    side: Literal["before", "after"] | None = None


class MissingModuleError(MeasureError):
    """A worker's Python lacks a module that it needs: install it there."""


class ChangedModelError(MeasureError):
    """A model file changed after it was opened: measure again when no program writes it."""


class TooFewCoresError(MeasureError):
    """A worker cannot have as many cores as its case needs: give fewer."""

    @classmethod
    def of(cls, wanted: int, available: int, reason: str) -> TooFewCoresError:
        """Return the error for a case that wants more cores than there are, for this `reason`."""
        return cls(
            f"{wanted} cores are wanted, but {reason}.",
            Remedy(
                f"Give at most {available} for {{cores}}, or use a machine with {wanted} cores."
            ),
        )


class EngineError(ModelPerfError):
    """An engine cannot run any case: install it, or choose another."""

    exit_code = 3


class EnvironmentMakingError(ModelPerfError):
    """An environment with other packages cannot be made: require versions that exist here."""

    exit_code = 3


class ClusterError(ModelPerfError):
    """A cluster cannot do what was requested: start what is missing, or fix what differs."""

    exit_code = 3


class BaselineError(ModelPerfError):
    """A stored baseline is broken, or newer than this version: restore it, or record it again."""


def find_lack_of_memory(error: Exception) -> MeasureError | None:
    """Return the error for a lack of memory, even if an import reported it, or None."""
    # The loader raises an ImportError with one of these messages.
    reported = str(error) if isinstance(error, ImportError) else ""
    is_unloaded = "failed to map segment" in reported or "annot allocate memory" in reported
    if not (is_unloaded or isinstance(error, MemoryError)):
        return None
    return MeasureError(
        "there is not enough memory. End other programs, or allow more: ulimit -v shows what this "
        "process may have."
    )
