"""What is made when it is first used: imports, so that a command starts soon, and attributes of
what every decision makes anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any


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


class _Once:
    """`functools.cached_property` as it is from Python 3.12 on: without a lock.

    A decision reads two dozen of them, and the lock takes longer than many a value. Two threads
    that read one of the same object at once may both compute it: it is for what one thread makes
    and reads, as everything that belongs to one decision.
    """

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        # Found there from now on, without this function.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


if TYPE_CHECKING:
    from functools import cached_property

    once = cached_property
else:
    once = _Once
