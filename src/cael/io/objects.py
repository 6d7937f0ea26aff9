"""Policies that are Python objects. This is the only place that runs code of the user, and only when it is named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats
from cael.errors import PolicyError
from cael.io.encode import Actions, refuse_hidden_order
from cael.policies.policy import FromModel, Policy


def load_object(name: str, actions: Actions) -> Policy:
    """The policy named 'module:attribute'; the current folder is searched as well as what is installed."""
    subject = attribute(name, f"policy 'python:{name}'", "python:models:ranker")
    return as_policy_object(subject, f"python:{name}", actions)


def attribute(name: str, what: str, example: str) -> Any:
    """The Python object named 'module:attribute'. what, example: for messages."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise PolicyError(f"{what}: expected python:MODULE:ATTRIBUTE, for example {example}.")
    try:
        with _searched_first(str(Path.cwd())):
            subject: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what}: importing {module_name} failed: {_reason(error)}.") from None
    for part in path.split("."):
        if not hasattr(subject, part):
            raise PolicyError(f"{what}: {module_name} has no attribute {path!r}.")
        subject = getattr(subject, part)
    return subject


def load_learned(path: str, actions: Actions, logging: Policy | None) -> Policy:
    """The policy that `cael.learn` saved to a file, for a log with these actions.

    The module that knows its parts is named by text: it builds on the engine, which builds on this one.
    """
    read_policy = importlib.import_module("cael.learning.saved").read_policy
    try:
        policy: Any = read_policy(path, logging)
    except OSError as error:
        raise PolicyError(f"policy 'learned:{path}': the file cannot be read: {error.strerror}.") from None
    known = policy.labels or tuple(range(policy.n_actions))
    if tuple(actions.labels) != known:
        raise PolicyError(
            f"policy 'learned:{path}' was learned for the actions {Actions(known).shown()}; this log has "
            f"{actions.shown()}. Give the table of actions that it was learned with (--actions, --n-actions)."
        )
    learned: Policy = policy
    return learned


@contextmanager
def _searched_first(folder: str) -> Iterator[None]:
    """Look for modules in a folder, and afterwards in it last: a file there must not take the place of a package that
    is imported later, which nobody named."""
    there = folder in sys.path
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module took it away itself
            sys.path.remove(folder)
        if not there:
            sys.path.append(folder)


def as_policy_object(subject: Any, name: str, actions: Actions) -> Policy:
    """A policy from a cael policy, a classifier whose classes are action labels, or a function of contexts."""
    if isinstance(subject, Policy):
        return subject
    if isinstance(subject, type) or not (callable(subject) or hasattr(subject, "predict_proba")):
        kind = f"{subject.__name__} class" if isinstance(subject, type) else type(subject).__name__
        raise PolicyError(
            f"policy {name!r} is a {kind}: expected a function of contexts (b, d) -> (b, k), an object with "
            "predict_proba, or a cael policy."
        )
    if not hasattr(subject, "predict_proba"):
        refuse_hidden_order(f"policy {name!r}", actions)
        return FromModel(_Called(subject, name))
    if not hasattr(subject, "classes_"):
        raise PolicyError(f"policy {name!r} has predict_proba but no classes_: is the model trained?")
    classes = np.asarray(subject.classes_)
    numbers = actions.numbers(np.arange(len(classes)), [_plain(each) for each in classes])
    if (numbers < 0).any():
        raise PolicyError(
            f"policy {name!r}: the class {_plain(classes[np.flatnonzero(numbers < 0)[0]])!r} of the model is not "
            f"among the actions {actions.shown()}."
        )
    return FromModel(_Classifier(subject, name, numbers))


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@final
@dataclass(frozen=True)
class _Called:
    """A function whose failure is an error about the policy and not a traceback."""

    function: Any
    name: str

    def __repr__(self) -> str:
        return self.name

    def __call__(self, contexts: Floats) -> Array:
        try:
            answer = np.asarray(self.function(contexts))
            if np.iscomplexobj(answer):  # numpy would drop the imaginary parts
                raise TypeError("the probabilities are complex numbers")
            return answer.astype(np.float64, copy=False)
        except (Exception, SystemExit) as error:
            raise PolicyError(
                f"policy {self.name!r} failed on contexts of shape {contexts.shape}: {_reason(error)}."
            ) from error


@final
@dataclass(frozen=True)
class _Classifier:
    """A classifier with its classes as action numbers."""

    model: Any
    name: str
    classes_: Any

    def __repr__(self) -> str:
        return self.name

    def predict_proba(self, contexts: Floats) -> Array:
        return _Called(self.model.predict_proba, self.name)(contexts)
