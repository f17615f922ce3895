"""What is imported when it is first used, so that a command starts soon."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562).

    homes: for each name the module that defines it.
    """

    def read(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    return read


class Functions:
    """The functions of a module, which is imported when one of them is first called.

    For whoever lists the functions of many modules, of which each caller uses a few: a type
    checker is shown an import of the module itself.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(self._module), name)(*args, **kwargs)

        called.__name__ = name
        called.__qualname__ = f"{self._module}.{name}"
        return called
