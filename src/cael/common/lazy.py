"""Packages whose public names are loaded when they are asked for, so that importing one costs nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


def names_in(module: str) -> dict[str, Any]:
    """The public names that a module imports, in its order, and what they stand for."""
    names = vars(import_module(module))
    return {name: value for name, value in names.items() if name == "__version__" or not name.startswith("_")}


@cache
def homes(module: str) -> dict[str, tuple[str, str]]:
    """(module, name there) of each name that a module imports on a line of its own; none where its text is not kept."""
    spec = find_spec(module)
    text = getattr(spec and spec.loader, "get_source", lambda _: None)(module) or ""
    lines = re.findall(r"^from (\S+) import (\w+) as (\w+)$", text, re.MULTILINE)
    return {name: (home, original) for home, original, name in lines}


def loaded(home: str, name: str) -> Any:
    """A name of a module, or a module in a package."""
    module = import_module(home)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")


def exported(base: type[T]) -> list[type[T]]:
    """The classes of a kind that cael exports, in the order of `cael.common.public`."""
    values = names_in("cael.common.public").values()
    return [value for value in values if isinstance(value, type) and issubclass(value, base) and value is not base]


def lazily(
    package: str, module: str, kept: Callable[[Any], bool] = lambda value: True
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: its submodules, and the kept ones of the names in a module."""

    def load() -> dict[str, Any]:
        public = {name: value for name, value in names_in(module).items() if kept(value)}
        names = vars(sys.modules[package])
        names.update(public, __all__=list(public))
        return names

    def get(name: str) -> Any:
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        home, original = homes(module).get(name, ("", ""))
        if home:
            value = loaded(home, original)
            if kept(value):
                return vars(sys.modules[package]).setdefault(name, value)
        elif name == "__all__" or not name.startswith("_"):
            names = load()
            if name in names:
                return names[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(load()["__all__"])
