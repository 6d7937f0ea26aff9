"""Learned policies as plain files: JSON with arrays of numbers in it; nothing in it is code."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cael.common.types import Array, frozen
from cael.common.version import __version__
from cael.common.whole import write_whole
from cael.embedding.exact.growing import Member
from cael.embedding.exact.rewards import SparseRewards
from cael.errors import InputError, PolicyError
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.old_policy import ModelledOld
from cael.learning.plays import Play
from cael.learning.rules import ScoredRule, TreeRule
from cael.learning.scorers import ClusterScores, LinearScores, NetworkScores, RidgeScores, SameScores
from cael.learning.sound import UNUSABLE, refuse_unsound
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome
from cael.policies.label_fit import Basis, LabelModel
from cael.policies.policy import Policy, Tabular, Uniform

FORMAT = "cael.policy/1"
PARTS: dict[str, type] = {
    part.__name__: part
    for part in (
        AdditiveOutcome, Basis, ClusterScores, InteractingOutcome, LabelModel, LearnedPolicy, LinearScores, Member,
        ModelledOld, NetworkScores, Play, RidgeScores, SameScores, ScoredRule, SparseRewards, TreeRule, Uniform,
    )
}  # fmt: skip
"""What a file can hold."""
SHORT = 64
"""Arrays of at most so many numbers are written out; longer ones as base64 of their bytes, low byte first."""
KINDS = ("f4", "f8", "i8", "b1")
WHAT = {"policy": "learned policy", "watch": "watch"}
LOGGING = "logging"
"""In the place of an old policy that is the logging policy of whatever log the policy is read for."""


def save_policy(policy: LearnedPolicy, path: str | Path, more: Mapping[str, Any] | None = None) -> Path:
    """Write a learned policy to a JSON file. more: facts beside it, which are not read again."""
    return write_document(path, FORMAT, written(slim(policy)), more)


def write_document(path: str | Path, version: str, entry: Any, more: Mapping[str, Any] | None = None) -> Path:
    """Write a JSON file of this format, which holds an entry under the format's name, with its checksum."""
    path, name = Path(path), name_of(version)
    if path.suffix.lower() != ".json":
        raise InputError(f"a learned policy or a watch is saved to a file that ends in .json; got {str(path)!r}.")
    document = {"format": version, "version": __version__, **(more or {}), "sha256": digest(entry), name: entry}
    write_whole(path, json.dumps(document, allow_nan=False))
    return path


def name_of(version: str) -> str:
    """ "policy" of "cael.policy/1"."""
    return version.partition(".")[2].partition("/")[0]


def digest(entry: Any) -> str:
    """The checksum of a policy in a file."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def slim(policy: LearnedPolicy) -> LearnedPolicy:
    """Without what only training needs, and with its old policy by name where it is no plain one."""
    rule = policy.rule
    if isinstance(rule, ScoredRule):
        rule = replace(rule, scorer=slim_scorer(rule.scorer))
    return replace(policy, rule=rule)


def slim_scorer(scorer: Any) -> Any:
    """A scorer without what only training needs."""
    if isinstance(scorer, ClusterScores):
        return replace(scorer, model=slim_scorer(scorer.model))
    if not isinstance(scorer, NetworkScores):
        return scorer
    model = scorer.model.in_numpy()
    return replace(scorer, model=replace(model, folds=tuple(rows[:0] for rows in model.folds), losses=np.zeros((0, 0))))


def written(value: Any) -> Any:
    """A value as plain types."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Policy) and not isinstance(value, LearnedPolicy | ModelledOld | Uniform):
        fixed = value.fixed if isinstance(value, Tabular) else None
        return {"part": LOGGING} if fixed is None else {"part": "fixed", "table": _array(fixed)}
    if is_dataclass(value) and not isinstance(value, type):
        if type(value).__name__ not in PARTS:
            raise InputError(f"a {type(value).__name__} cannot be saved.")
        entries = {field.name: written(getattr(value, field.name)) for field in fields(value) if field.init}
        return {"part": type(value).__name__, **entries}
    if isinstance(value, dict):
        return {"part": "dict", "entries": {name: written(entry) for name, entry in value.items()}}
    if isinstance(value, tuple | list):
        return [written(entry) for entry in value]
    return value


def _array(array: Array) -> dict[str, Any]:
    kind = {"f4": "f4", "f8": "f8", "b1": "b1"}.get(f"{array.dtype.kind}{array.dtype.itemsize}", "i8")
    plain = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    head = {"part": "array", "kind": kind, "shape": list(array.shape)}
    if array.size <= SHORT and (array.dtype.kind != "f" or np.isfinite(array).all()):
        return {**head, "values": plain.ravel().tolist()}
    return {**head, "bytes": base64.b64encode(plain.tobytes()).decode()}


def read_policy(path: str | Path, logging: Any = None) -> Any:
    """A learned policy from its file. logging: the policy that it leans on, where the file says only that this is the
    logging policy of the log: that log, or its logging policy."""
    entry, known = read_document(path, FORMAT), getattr(logging, "logging", logging)
    try:
        return sound_policy(entry, known)
    except UNUSABLE as error:
        raise PolicyError(f"{path} does not hold a learned policy that can be used: {error}") from None


def sound_policy(entry: Any, logging: Policy | None) -> LearnedPolicy:
    """The policy of an entry, if it is one."""
    policy = restored(entry, logging)
    if not isinstance(policy, LearnedPolicy):
        raise PolicyError(f"it is a {type(policy).__name__}.")
    refuse_unsound(policy)
    return policy


def read_document(path: str | Path, version: str) -> Any:
    """The entry of a JSON file of this format, as it was saved."""
    name = name_of(version)
    if not Path(path).is_file():
        raise PolicyError(f"there is no file {path} with a {WHAT[name]}.")
    try:
        document = json.loads(Path(path).read_text("utf-8"))
        found = document["format"]
        entry = document[name] if found == version else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PolicyError(f"{path} is no file of a {WHAT[name]}: {type(error).__name__} {error}.") from None
    if found != version:
        raise PolicyError(f"{path}: expected the format {version}; got {str(found)[:80]!r}.")
    if digest(entry) != document.get("sha256"):
        raise PolicyError(f"{path} was changed after it was saved: its checksum is another. Save the {name} again.")
    return entry


def restored(entry: Any, logging: Policy | None) -> Any:
    """The value of plain types."""
    if isinstance(entry, list):
        return tuple(restored(each, logging) for each in entry)
    if not isinstance(entry, dict):
        return entry
    part = entry["part"]
    if part == "array":
        return _restored_array(entry)
    if part == "dict":
        return {name: restored(each, logging) for name, each in entry["entries"].items()}
    if part == "fixed":
        return Tabular(restored(entry["table"], logging))
    if part == LOGGING:
        return _logging(logging)
    if part not in PARTS:
        raise PolicyError(f"unknown part {str(part)[:80]!r} of a learned policy.")
    return PARTS[part](**{name: restored(each, logging) for name, each in entry.items() if name != "part"})


def _logging(logging: Policy | None) -> Policy:
    if logging is None or not logging.complete:
        raise PolicyError(
            "this policy leans on the logging policy of its log, which is not known here in full: give the log, or its "
            "logging policy (cael.read_policy(path, log); --logging)."
        )
    return logging


def _restored_array(entry: Mapping[str, Any]) -> Array:
    kind, shape = entry["kind"], tuple(int(size) for size in entry["shape"])
    if kind not in KINDS or min(shape, default=0) < 0:
        raise PolicyError(f"unknown kind of numbers {str(kind)[:20]!r}, or a negative size.")
    dtype = np.dtype(kind).newbyteorder("<")
    if "values" in entry:
        flat = np.array(entry["values"], dtype=dtype)
        if kind in ("i8", "b1") and flat.tolist() != entry["values"]:
            raise PolicyError(f"expected numbers of the kind {kind}; got {str(entry['values'])[:80]}.")
    else:
        flat = np.frombuffer(base64.b64decode(entry["bytes"], validate=True), dtype=dtype)
    return frozen(flat.reshape(shape).astype(np.dtype(kind), copy=False))
