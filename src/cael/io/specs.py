"""PolicySpec: a policy in words, such as 'topk:items+chances,rest=uniform', or as a table of a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, final

from cael.errors import InputError, PolicyError
from cael.io.files import format_of

REST = ("error", "uniform", "renormalise")

KINDS: dict[str, tuple[str, ...]] = {
    "probability": (),
    "dense": ("actions",),
    "topk": ("rest",),
    "table": ("rest",),
    "choice": ("epsilon",),
    "softmax": ("temperature", "actions"),
    "greedy": ("epsilon", "actions"),
    "learned": (),
    "python": ("actions", "columns"),
    "uniform": (),
    "logging": (),
}
"""The kinds of policies and the options that each takes."""

HELP = """\
probability:COLUMN          its probability of the logged action
dense:COLUMN                all probabilities, as a column of lists, in the
                            order of the actions; where these are names,
                            say it: actions=apple|banana|cherry
dense:PATTERN               all probabilities, one column each: dense:pi_*
topk:ACTIONS+PROBABILITIES  two columns of lists; rest=error|uniform|renormalise
table:FILE                  rows (decision, action, probability), or rows
                            (action, probability) for all alike; rest=
choice:COLUMN               the action that it chooses; epsilon=
softmax:SCORES              scores: a column of lists, a pattern, or a file
                            with a column 'score'; temperature=
greedy:SCORES               the best score; epsilon=
learned:FILE                a policy that cael learn saved
python:MODULE:ATTRIBUTE     a fitted classifier or Pipeline, a function or a
                            policy of cael; the module is imported, so it
                            runs; actions=a|b, columns=x|y for a function
uniform, logging            every action alike; the logging policy itself"""


@final
@dataclass(frozen=True)
class PolicySpec:
    """kind: one of KINDS. what: column, columns, file or object. rest, epsilon, temperature: options of some
    kinds. actions: labels in the order of the numbers that it gives. columns: of the log that a function is given."""

    kind: str
    what: str = ""
    rest: str = "error"
    epsilon: float = 0.0
    temperature: float = 1.0
    actions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PolicyError(f"unknown kind of policy {self.kind!r}; there are:\n{HELP}")
        if self.rest not in REST:
            raise PolicyError(f"rest must be one of {', '.join(REST)}; got {self.rest!r}.")
        if not self.what and self.kind not in ("uniform", "logging"):
            raise PolicyError(f"policy {self.kind!r}: say of which column or file. The kinds are:\n{HELP}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.what}" if self.what else self.kind


def is_spec(given: Any) -> TypeGuard[str | Mapping[str, Any] | PolicySpec]:
    """Whether this is a policy in words: a text, or {"kind": "choice", "column": "best"}; not {action: probability}."""
    return isinstance(given, str | PolicySpec) or (isinstance(given, Mapping) and isinstance(given.get("kind"), str))


def parse(given: str | Mapping[str, Any] | PolicySpec) -> PolicySpec | str:
    """The spec that a text or a mapping means; a text that is neither a kind nor a file is given back, a bare name."""
    if isinstance(given, PolicySpec):
        return given
    if isinstance(given, Mapping):
        return _from_mapping(given)
    text = given.strip()
    if text in ("uniform", "logging"):
        return PolicySpec(text)
    kind, colon, rest = text.partition(":")
    if kind in KINDS and colon:
        return _with_options(kind, rest)
    if format_of(re.split(r",\w+=", text)[0]):
        return _with_options("table", text)
    if colon:
        raise PolicyError(f"unknown kind of policy {kind!r} in {text!r}; there are:\n{HELP}")
    if not text:
        raise PolicyError(f"the policy is an empty text; the kinds are:\n{HELP}")
    return text


def _with_options(kind: str, text: str) -> PolicySpec:
    options: dict[str, Any] = {}
    while option := re.fullmatch(r"(.*),\s*([A-Za-z_]+)=([^,]*)", text):
        text, name, value = option.groups()
        if name in options:
            raise PolicyError(f"policy {kind}:{text}: the option {name} is given twice.")
        options[name] = value
    return _checked(kind, text.strip(), options)


def _from_mapping(given: Mapping[str, Any]) -> PolicySpec:
    options = dict(given)
    kind = options.pop("kind", None)
    places = ("column", "file", "object", "what") + (() if kind == "python" else ("columns",))
    what = [options.pop(name) for name in places if name in options]
    if not isinstance(kind, str) or len(what) > 1:
        raise PolicyError(f"a policy needs kind = ... and one of column, columns, file or object; got {dict(given)}.")
    named = what[0] if what else ""
    if not isinstance(named, str) and not (isinstance(named, list | tuple) and all(isinstance(x, str) for x in named)):
        raise PolicyError(f"a policy is made of a column, a file or an object, named by text; got {named!r}.")
    return _checked(kind, named if isinstance(named, str) else "+".join(named), options)


def _checked(kind: str, what: str, options: dict[str, Any]) -> PolicySpec:
    if kind not in KINDS:
        raise PolicyError(f"unknown kind of policy {kind!r}; there are:\n{HELP}")
    unknown = [name for name in options if name not in KINDS[kind]]
    if unknown:
        takes = f"it takes {', '.join(KINDS[kind])}" if KINDS[kind] else "it takes none"
        raise PolicyError(f"policy {kind!r} has no option {unknown[0]!r}; {takes}.")
    for name in ("epsilon", "temperature"):
        if name in options:
            options[name] = _number(name, options[name])
    for name in ("actions", "columns"):
        if name in options:
            options[name] = _names(name, options[name])
    return PolicySpec(kind, what, **options)


def _names(name: str, value: Any) -> tuple[str, ...]:
    """('a', 'b') of 'a|b' or ['a', 'b']."""
    listed = value.split("|") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed:
        raise PolicyError(f"{name} of a policy must be names, as in {name}=a|b|c; got {value!r}.")
    return tuple(str(label).strip() for label in listed)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise PolicyError(f"{name} of a policy must be a number; got {value!r}.") from None


def named(text: str) -> tuple[str, str]:
    """(name, spec) of 'new=choice:best'; without a name, the spec names itself."""
    pair = re.fullmatch(r"([^:=,]+)=(.+)", text)
    if not pair:
        return text, text
    name, spec = pair[1].strip(), pair[2].strip()
    if not name:
        raise InputError(f"the policy {text!r} has an empty name before '='.")
    return name, spec
