"""Import hooks that ask all other finders. One of them calls a function after an import."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from _thread import get_ident
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(module: str, then: Callable[[], None]) -> None:
    """Call the function now if the module is already imported, otherwise as soon as it is."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(module, then))


class AskingFinder(importlib.abc.MetaPathFinder):
    """A finder that asks all other finders, and changes what they find."""

    def __init__(self) -> None:
        # The threads that are asking the other finders now.
        self._asking: set[int] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        thread = get_ident()
        # Another finder may also ask all finders, including this one.
        if thread in self._asking or not self.is_wanted(fullname):
            return None
        self._asking.add(thread)
        try:
            found = (finder.find_spec(fullname, path, target) for finder in tuple(sys.meta_path))
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._asking.remove(thread)
        return None if spec is None else self.changed(spec)

    def is_wanted(self, fullname: str) -> bool:  # noqa: ARG002  # of all modules unless overridden
        """Whether this finder changes how the module is found."""
        return True

    @abstractmethod
    def changed(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        """Return the spec to use in place of the one that was found."""


class _Finder(AskingFinder):
    """A finder of the module until it is loaded, with a loader that calls the function.

    A program may find the module several times before it loads it, for example to see whether it is
    installed.
    """

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        super().__init__()
        self._module = module
        self._then = then

    def is_wanted(self, fullname: str) -> bool:
        return fullname == self._module

    def changed(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        if spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._begin)
        return spec

    def _begin(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


class _Loader(importlib.abc.Loader):
    """A loader that loads a module as its own loader does, then calls a function."""

    def __init__(self, loader: importlib.abc.Loader, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            # The program sees the original loader.
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()
