"""Every error that a user can do something about.

A message says what is wrong, where, what was expected, and what to type next.
The core raises these, the faces (`plugin`, `cli`) translate them into their own
kind of failure; the subclasses differ by what the user can do about them.
"""

from __future__ import annotations


class ModelPerfError(Exception):
    """The base of all errors that are meant to be read by a user."""

    exit_code = 2


class UsageError(ModelPerfError):
    """What was asked for cannot be meant: ask again, differently."""


class ModelError(ModelPerfError):
    """The model file itself is broken, unsupported or unreadable: give another one."""


class MisfitError(ModelError):
    """The shapes of a model do not fit together, at the node that `where` names."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


class BindingError(ModelPerfError):
    """A dimension of the model has no value, or cannot have the one given: bind it."""


class ExtensionError(ModelPerfError):
    """A plugin registered something unusable, or its counter failed: mend the plugin."""


class OutputError(ModelPerfError):
    """A result could not be written: give another place."""


class MeasureError(ModelPerfError):
    """A case could not be measured: its worker crashed, hung, or refused the model."""

    exit_code = 3


class MissingModuleError(MeasureError):
    """A worker's Python lacks a module that it needs: install it there."""


class ChangedModelError(MeasureError):
    """A model file is another one than when it was opened: measure again when nothing writes it."""


class TooFewCoresError(MeasureError):
    """A worker cannot have as many cores as its case wants: ask for fewer."""


class EngineError(ModelPerfError):
    """An engine cannot run at all, whatever the case: install it, or choose another."""

    exit_code = 3


class ClusterError(ModelPerfError):
    """A cluster cannot do what it is asked: start what is missing, or mend what differs."""

    exit_code = 3


class BaselineError(ModelPerfError):
    """A stored baseline is broken, or newer than this version: restore it, or record it anew."""
