"""The contracts for extensions, and the plugin manager that holds them.

The manager is not pytest's, so that the command line has the same extensions: from the entry point
group `modelperf`, from modules named with `--plugin`, and, under pytest, from every conftest. Hooks
register things once; no hook is called per node.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import pluggy
from msgspec import Struct, field

from pytest_modelperf.errors import ExtensionError, ModelPerfError, UsageError
from pytest_modelperf.profiler.engines.source import BUILT_IN, EngineModule, find_source
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

if TYPE_CHECKING:
    from pytest_modelperf.graph.operators.cost import Counter
    from pytest_modelperf.graph.shape_rules import ShapeRule

PROJECT = "modelperf"

# The name of an engine becomes a part of a case's id.
_ENGINE_NAME = re.compile(r"[A-Za-z0-9_.]{1,40}")

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Operators(Struct):
    """The counters and shape rules that extensions register, by `domain::Op`."""

    _counters: dict[str, Counter] = field(default_factory=dict)
    _shape_rules: dict[str, ShapeRule] = field(default_factory=dict)

    def register(
        self, op: str, *, count: Counter | None = None, shapes: ShapeRule | None = None
    ) -> None:
        """Register the cost of `domain::Op`, and the types of its outputs.

        `count` maps a node to its `Cost`; `shapes` maps a node to one `OutputType` per output. A
        standard operator (plain `Op`) may be registered too: its rule replaces the built-in one.
        """
        for what, function in (("count", count), ("shapes", shapes)):
            if function is not None and not callable(function):
                raise ExtensionError(f"{what} of the operator {op!r} must be a function.")
        if not op or op.startswith("::") or op.endswith("::"):
            raise ExtensionError(f"the operator {op!r} must be named as domain::Op.")
        if count is None and shapes is None:
            raise ExtensionError(f"the operator {op!r} needs count, shapes or both.")
        name = op.removeprefix("ai.onnx::")
        if count is not None:
            self._counters[name] = count
        if shapes is not None:
            self._shape_rules[name] = shapes

    @property
    def counters(self) -> Mapping[str, Counter]:
        return MappingProxyType(self._counters)

    @property
    def shape_rules(self) -> Mapping[str, ShapeRule]:
        return MappingProxyType(self._shape_rules)


class Engines(Struct):
    """The engines by name: the built-in ones, and those of extensions."""

    _modules: dict[str, EngineModule] = field(default_factory=lambda: dict(BUILT_IN))

    def register(self, name: str, *, module: str, install: str = "") -> None:
        """Register the module of an engine, as `extensions.Engine` describes it.

        Its source is sent to a worker, so `module` is its full name. `install` is the command to
        type if its runtime is missing. A built-in name may be registered again: the last one
        counts.
        """
        if not _ENGINE_NAME.fullmatch(name):
            raise ExtensionError(
                f"the engine {name!r} must be named by letters, digits, `_`, and `.`."
            )
        find_source(module)
        self._modules[name] = EngineModule(name, module, install)

    def find(self, name: str) -> EngineModule:
        """Return the engine of that name, or raise UsageError with a list of all engines."""
        if name not in self._modules:
            raise UsageError(
                f"there is no engine {printable(name)!r}.{suggestion(name, self._modules)} "
                f"There are: {', '.join(sorted(self._modules))}."
            )
        return self._modules[name]


class Extensions(Struct, frozen=True):
    """All that extensions have registered."""

    operators: Operators = field(default_factory=Operators)
    engines: Engines = field(default_factory=Engines)


class Hooks:
    """The hooks that an extension can implement."""

    @hookspec
    def modelperf_register_operators(self, operators: Operators) -> None:
        """Register counters and shape rules for operators that the built-in tables lack."""

    @hookspec
    def modelperf_register_engines(self, engines: Engines) -> None:
        """Register modules that run models."""


_HOOK_NAMES = frozenset(name for name in vars(Hooks) if name.startswith(f"{PROJECT}_"))


class PluginManager(pluggy.PluginManager):
    """A plugin manager that treats every function with a hook's name as a hook, as pytest does."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and is_hook_name(name) and callable(getattr(plugin, name, None)):
            return pluggy.HookimplOpts(
                wrapper=False,
                hookwrapper=False,
                optionalhook=False,
                tryfirst=False,
                trylast=False,
                specname=None,
            )
        return options


def is_hook_name(name: str) -> bool:
    """Whether `Hooks` declares it. Other names with the same prefix are ignored."""
    return name in _HOOK_NAMES


def make_plugin_manager() -> PluginManager:
    """Return a manager with the installed extensions of the entry point group `modelperf`."""
    manager = PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.load_setuptools_entrypoints(PROJECT)
    return manager


def import_plugin(manager: pluggy.PluginManager, name: str) -> None:
    shown = printable(name)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"the plugin {shown!r} cannot be imported: {printable(str(error))}. Give the name of a "
            "module, such as my_package.modelperf_ops."
        ) from error
    except Exception as error:
        raise ExtensionError(
            f"the plugin {shown!r} failed while it was imported: {type(error).__name__}: "
            f"{printable(str(error))}"
        ) from error
    if not any(map(is_hook_name, dir(module))):
        raise UsageError(
            f"the plugin {shown!r} has no hook: define modelperf_register_operators(operators) or "
            "modelperf_register_engines(engines) in it. `python -m pydoc "
            "pytest_modelperf.extensions` has an example."
        )
    register_plugin(manager, module)


def register_plugin(manager: pluggy.PluginManager, plugin: object) -> None:
    """Add the hooks of a module or object. Raise ExtensionError if one has the wrong signature."""
    if manager.is_registered(plugin):
        return
    try:
        manager.register(plugin)
    except pluggy.PluginValidationError as error:
        raise ExtensionError(f"a hook has the wrong signature: {error}") from error


def load_extensions(names: Sequence[str]) -> Extensions:
    """Return the installed extensions, and those in the modules of these names."""
    manager = make_plugin_manager()
    for name in names:
        import_plugin(manager, name)
    return collect_extensions(manager)


def collect_extensions(manager: pluggy.PluginManager) -> Extensions:
    """Return the operators and engines of all registered extensions."""
    extensions = Extensions()
    hook = manager.hook
    _call(hook.modelperf_register_operators, operators=extensions.operators)
    _call(hook.modelperf_register_engines, engines=extensions.engines)
    return extensions


def _call(hook: pluggy.HookCaller, **arguments: object) -> None:
    try:
        hook(**arguments)
    except ModelPerfError:
        raise
    except Exception as error:
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ExtensionError(
            f"{hook.name} failed in {frame.filename}:{frame.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error
