"""Target policies of a stream: columns of the log that are made into a policy batch by batch, or functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.errors import CaelError, PolicyError
from cael.io.encode import Actions, columns_of
from cael.io.files import format_of
from cael.io.long import long_policy
from cael.io.objects import load_learned, load_object
from cael.io.originals import Originals
from cael.io.policy_columns import Rows, build, guess
from cael.io.roles import CONVENTIONS
from cael.io.sources import Source, open_source
from cael.io.specs import PolicySpec, is_spec, parse
from cael.log.pieces import Piece, numbers_within
from cael.log.row_checks import refuse_contradictions
from cael.log.scratch import Scratch
from cael.policies.aligned import Aligned, aligned, asked_once
from cael.policies.from_model import FromModel
from cael.policies.given import policy_on
from cael.policies.labelled import Names
from cael.policies.mixture import Mixture
from cael.policies.policy import (
    LoggedOnly,
    Policy,
    Tabular,
    Uniform,
    fixed_on,
    logged_probability,
    probabilities,
    refuse_ineligible,
    support,
)
from cael.policies.propensity import EstimatedLogging
from cael.policies.topk import TopK

IN_A_COLUMN = (
    "For a scanned log, write it into a column and name that, as in 'probability:COLUMN' or "
    "'topk:ACTIONS+PROBABILITIES'; or give a function of contexts."
)

SOME, FAR = 8, 2**40
"""Rows on which a policy is asked whether it looks at their numbers, and a number that no log has."""


@final
@dataclass(frozen=True, eq=False)
class Target:
    """A policy to evaluate. spec: where it is made from columns of the log, batch by batch; else policy: a function of
    the contexts, or the same for all rows. complete: whether the probabilities of all actions are known."""

    label: str
    spec: PolicySpec | None
    policy: Policy | None
    complete: bool
    columns: tuple[str, ...] = ()
    contexts: bool = False
    actions: Actions | None = None

    def on(self, piece: Piece) -> Policy:
        """The policy on the rows of a batch, which are counted within it; each row is asked once where possible."""
        policy = self._there(piece)
        if fixed_on(policy, piece) is not None:
            return policy
        batch = piece.batch()
        policy = asked_once(policy, batch)
        refuse_ineligible(policy, batch)
        return policy

    def is_dense(self, piece: Piece) -> bool:
        """Whether all actions of a row have to be looked at: the policy has no list of few."""
        if not self.complete or len(piece) == 0:
            return False
        try:
            policy = self._there(piece)
            return fixed_on(policy, piece) is None and support(policy, piece.batch(slice(0, 1))) is None
        except CaelError:  # the pass says what is wrong, with its place
            return True

    def _there(self, piece: Piece) -> Policy:
        if piece.source is None:
            assert self.policy is not None
            assert piece.numbers is not None
            # The check of eligible actions names the rows of the log, for whatever policy.
            return (aligned if piece.eligible is None else Aligned)(self.policy, piece.numbers)
        if isinstance(self.policy, EstimatedLogging):
            return self.policy.on_folds(piece.folds(self.policy.folds, self.policy.seed))
        if self.policy is not None:
            policy = self.policy
            if policy.wanted:
                policy = policy.reading(Originals(piece.source, piece.rows), piece.first)
            return aligned(policy, slice(piece.first, piece.first + len(piece)))
        assert self.spec is not None
        assert self.actions is not None
        if self.spec.kind == "probability":
            p = numbers_within(self.spec.what, piece.source, 0.0, 1.0)
            if p is not None:
                return LoggedOnly.trusting(p[piece.kept])
        return build(self.spec, Rows(piece.source, self.actions, piece.rows, None), None)


def row_aligned(policy: Policy) -> bool:
    """Whether a policy is an array with a line for each row of a log."""
    if isinstance(policy, Mixture):
        return any(row_aligned(part) for part in policy.policies)
    if isinstance(policy, Tabular):
        return policy.table.ndim == 2
    scores = getattr(policy, "scores", None)
    return isinstance(policy, LoggedOnly | TopK) or (isinstance(scores, np.ndarray) and scores.ndim == 2)


def target_of(
    given: Any, probe: Piece, actions: Actions, id_column: str | None, logging: Target | None = None
) -> Target:
    """The target that a spec, a policy, a (k,) array or a function of contexts means on a scanned log."""
    if is_spec(given):
        return _from_spec(given, probe, actions, id_column, logging)
    policy = policy_on(given, Names(actions.labels, actions.hidden))
    if policy.n_actions is not None and policy.n_actions != len(actions):
        raise PolicyError(f"{policy!r} has {policy.n_actions} actions, but the log has {len(actions)}.")
    return in_stream(policy, probe)


def in_stream(policy: Policy, probe: Piece, label: str = "") -> Target:
    """The target that a policy is on a scanned log; columns that it wants are read along."""
    if row_aligned(policy):
        raise PolicyError(f"{policy!r} is aligned with the rows of a log in memory. {IN_A_COLUMN}")
    assert probe.source is not None
    for name in policy.wanted:
        probe.source.need(name)
    contexts = not isinstance(policy, Tabular | Uniform) and not (isinstance(policy, FromModel) and policy.wanted)
    return Target(label or repr(policy), None, policy, policy.complete, policy.wanted, contexts=contexts)


def _from_spec(given: Any, probe: Piece, actions: Actions, id_column: str | None, logging: Target | None) -> Target:
    assert probe.source is not None
    parsed = parse(given)
    spec = guess(parsed, probe.source) if isinstance(parsed, str) else parsed
    if spec.kind == "logging" and logging is not None:
        return replace(logging, label="logging")
    if spec.kind == "logging":
        raise PolicyError(
            "policy 'logging': the logging policy of this log is known on logged actions alone. Give it to scan with "
            "logging= (--logging)."
        )
    if spec.kind == "uniform":
        return Target("uniform", None, Uniform(len(actions)), True)
    if spec.kind == "python":
        policy = load_object(spec).matched(Names(actions.labels, actions.hidden))
        return in_stream(policy, probe, str(spec))
    if spec.kind == "learned":
        known = None if logging is None or logging.spec is not None else logging.policy
        return Target(str(spec), None, load_learned(spec.what, actions, known), True, contexts=True)
    if spec.kind == "table" or (spec.kind in ("softmax", "greedy") and format_of(spec.what)):
        ids = {str(id_column).lower(), *CONVENTIONS["id"]} & {name.lower() for name in open_source(spec.what).names}
        if ids:
            raise PolicyError(
                f"policy '{spec}': its column {min(ids)!r} names decisions, and joining them needs the log in memory. "
                "Write the lists as columns of the log (topk:ACTIONS+PROBABILITIES)."
            )
        return Target(str(spec), None, long_policy(spec, probe.source, actions, None, None), True)
    parts = [spec.what] if spec.kind in ("probability", "choice") else columns_of(probe.source, spec.what, f"'{spec}'")
    policy = build(spec, Rows(probe.source, actions, probe.rows, None), None)
    return Target(str(spec), spec, None, policy.complete, tuple(parts), actions=actions)


def refuse_by_position(policy: Policy, piece: Piece) -> None:
    """Refuse a policy that answers by the number of a row instead of by its contexts: batches have no such numbers.

    It is asked about the same few rows under two sets of numbers.
    """
    rows = piece.batch(slice(0, min(SOME, len(piece))))
    ask = probabilities if policy.complete else logged_probability
    try:
        answers = ask(policy, rows)
    except Exception:  # whatever is wrong without moving a row is said by the pass, with its place
        return
    try:
        moved = ask(policy, replace(rows, rows=slice(FAR, FAR + len(rows))))
        by_position = not np.allclose(answers, moved, rtol=1e-9, atol=1e-12)
    except Exception:
        by_position = True
    if by_position:
        raise PolicyError(
            f"{policy!r} gives the same contexts other probabilities, or none, where the number of the row differs: it "
            f"is aligned with the rows of a log in memory. {IN_A_COLUMN}"
        )


def with_propensities(piece: Piece, logging: Policy) -> Piece:
    """The piece with the logging policy's probabilities of the logged actions; checked where the log has its own."""
    logged = logged_probability(logging, piece.batch())
    refuse_contradictions(logged, piece.propensities)
    return replace(piece, propensities=logged) if piece.propensities is None else piece


def as_source(
    batch: Any,
    name: str,
    origin: tuple[str, int],
    types: tuple[tuple[str, Any], ...] | None = None,
    scratch: Scratch | None = None,
) -> Source:
    """A record batch as a table with named columns that knows its place in a file. types: of its columns, if known."""
    if types is None:
        types = tuple(zip(batch.schema.names, batch.schema.types, strict=True))
    arrays = dict(zip((column for column, _ in types), batch.columns, strict=True))
    return Source(name, types, memory=batch, origin=origin, arrays=arrays, scratch=scratch)
