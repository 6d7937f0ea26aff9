"""Names that the tables of well-known tools give to the columns of a log."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from cael.errors import InputError

LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "eppo": {
        "action": ("action",),
        "propensity": ("actionprobability", "action_probability"),
        "cluster": ("subject", "subjectkey", "subject_key"),
        "timestamp": ("timestamp",),
        "contexts": ("subjectnumericattributes_*", "subjectcategoricalattributes_*", "subject_numeric_attributes_*",
                     "subject_categorical_attributes_*"),
    },
    "growthbook": {
        "action": ("variation_id", "variationid", "variation"),
        "cluster": ("user_id", "anonymous_id", "device_id", "userid", "anonymousid"),
        "timestamp": ("timestamp", "received_at"),
        "contexts": (),
    },
}  # fmt: skip
"""For each layout, the names of each role in lower case, and patterns of contexts."""

REWARDS = (
    "The exported decisions have no reward: join it with --rewards FILE --on COLUMN, in Python cael.io.Joined, or "
    "name its "
    "column with --reward"
)


def names_in(layout: str, role: str) -> tuple[str, ...]:
    """The names that a role has in a layout."""
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r}; there are: {', '.join(LAYOUTS)}.")
    return LAYOUTS[layout].get(role, ())


def contexts_in(layout: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The columns of contexts of a layout, or None where it names none."""
    patterns = names_in(layout, "contexts")
    return tuple(name for name in names if any(fnmatchcase(name.lower(), pattern) for pattern in patterns)) or None


def refuse_packed(layout: str | None, source: str, types: tuple[tuple[str, Any], ...]) -> None:
    """Attributes that are still objects in one column would be no contexts."""
    patterns = [pattern.removesuffix("_*") for pattern in names_in(layout, "contexts")] if layout else []
    packed = [name for name, _ in types if name.lower() in patterns]
    if packed:
        raise InputError(
            f"{source}: column {packed[0]!r} holds objects. Write one column for each attribute ({packed[0]}_age), "
            "or export "
            "the rows as JSON lines, whose objects become columns."
        )
