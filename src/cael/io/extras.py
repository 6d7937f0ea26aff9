"""Packages that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any

from cael.errors import InputError


def extra(module: str, name: str, why: str) -> Any:
    """The module, or an error that says which extra brings it. why: a clause that begins the message."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{why}. Reading it takes {package}, which is not installed ({error}): pip install 'cael[{name}]'."
        ) from None
