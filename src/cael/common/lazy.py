"""Packages whose public names are loaded when the first of them is asked for, so that importing one costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, names_in: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: its submodules, and the names that the module `names_in` lists."""

    def load() -> dict[str, Any]:
        public = import_module(names_in)
        names = vars(sys.modules[package])
        names.update({name: getattr(public, name) for name in public.__all__}, __all__=public.__all__)
        return names

    def get(name: str) -> Any:
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        if name == "__all__" or not name.startswith("_"):
            found = load()
            if name in found:
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(load()["__all__"])
