"""Policies that are Python objects. This is the only place that imports code of the user, and only when it is named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cael.errors import InputError, PolicyError
from cael.io.encode import Actions
from cael.io.specs import PolicySpec
from cael.policies.from_model import FromModel, reason
from cael.policies.policy import Policy


def load_object(spec: PolicySpec) -> Policy:
    """The policy named 'module:attribute'; the current folder is searched as well as what is installed."""
    subject = attribute(spec.what, f"policy '{spec}'", "python:models:ranker")
    return as_policy_object(subject, spec)


def attribute(name: str, what: str, example: str) -> Any:
    """The Python object named 'module:attribute'. what, example: for messages."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise PolicyError(f"{what}: expected python:MODULE:ATTRIBUTE, for example {example}.")
    try:
        with _searched_first(str(Path.cwd())):
            subject: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what}: importing {module_name} failed: {reason(error)}.") from None
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


def as_policy_object(subject: Any, spec: PolicySpec) -> Policy:
    """A policy from a cael policy, a fitted classifier, or a function."""
    if isinstance(subject, Policy):
        return subject
    try:
        return FromModel(subject, name=str(spec), actions=spec.actions or None, columns=spec.columns or None)
    except PolicyError:
        raise
    except InputError as error:
        raise PolicyError(str(error)) from None
