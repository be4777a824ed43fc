"""Find the source of modules for workers without importing them, which may fail here."""

from __future__ import annotations

import importlib.util
import marshal
import tokenize
import warnings
from collections.abc import Mapping
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import CodeType, MappingProxyType

from msgspec import Struct

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.text.escaping import printable


class ModuleSource(Struct, frozen=True):
    """The text of a module, and the file that it comes from."""

    text: str
    file: str


class EngineModule(Struct, frozen=True):
    """The module that implements an engine, and how to install its runtime."""

    name: str
    module: str
    install: str = ""

    @property
    def runs_user_code(self) -> bool:
        """Whether it may import modules of the user. Engines for ONNX files may not."""
        return self.name == CALLABLE_ENGINE or self not in BUILT_IN.values()


DEFAULT_ENGINE = "onnxruntime"
CALLABLE_ENGINE = "callable"
_INSTALLS = {
    DEFAULT_ENGINE: "pip install onnxruntime",
    "openvino": "pip install 'pytest-modelperf[openvino]'",
    CALLABLE_ENGINE: "",
}
BUILT_IN: Mapping[str, EngineModule] = MappingProxyType(
    {each: EngineModule(each, f"{__package__}.{each}", how) for each, how in _INSTALLS.items()}
)


def find_source(module: str) -> ModuleSource:
    """Return the source of a module. Raise ExtensionError if it cannot be found."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    # Not read with its loader, because pytest's loader rewrites the module.
    file = None if spec is None or not spec.has_location else spec.origin
    if file is None or not file.endswith(".py"):
        raise ExtensionError(
            f"the engine module {printable(module)!r} has no source file. Give the full "
            "name of a Python module that can be imported here, such as my_package.my_engine."
        )
    try:
        with tokenize.open(file) as source:
            return ModuleSource(source.read(), file)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ExtensionError(
            f"the source {printable(file)} of the engine module {printable(module)!r} cannot be "
            f"read: {error}."
        ) from error


# Hundreds of workers are started, and each of them would read it again.
@lru_cache(maxsize=32)
def compile_module(name: str, file: str, shown: str) -> bytes | None:
    """Return a compiled module for workers of this same Python, or None if it has an error.

    Python keeps the code next to the source, so it is seldom compiled. A traceback names the file
    `shown`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Not the loader of the module, because pytest's loader rewrites the module.
            code = SourceFileLoader(name, file).get_code(name)
        except (ImportError, OSError, SyntaxError, ValueError):
            # A worker compiles it again and reports the error.
            return None
    return None if code is None else marshal.dumps(_name_file(code, shown))


def _name_file(code: CodeType, file: str) -> CodeType:
    inner = (_name_file(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))
