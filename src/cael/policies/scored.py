"""Policies made from scores of the actions: Softmax and EpsilonGreedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Floats, Ints, frozen, settle
from cael.errors import PolicyError
from cael.policies.gate import need_actions, need_rows
from cael.policies.labelled import Labels, Names, labelled, need_order
from cael.policies.policy import Policy
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.batch import Batch

Scores: TypeAlias = ArrayLike | Callable[[Floats], ArrayLike]
"""Scores of the actions: (k,), row-aligned (n, k), or a function of contexts (b, d) -> (b, k)."""


def softmax(logits: Floats, temperature: float = 1.0) -> Floats:
    """exp(logits / temperature), normalised over the last axis; overwrites its argument."""
    with np.errstate(over="ignore"):  # to -infinity, whose exponential is 0
        logits -= logits.max(axis=-1, keepdims=True)
        logits /= temperature
    p = np.exp(logits, out=logits)
    p /= p.sum(axis=-1, keepdims=True)
    return p


def among(logits: Floats, batch: Batch) -> Floats:
    """Logits (b, k) that are -infinity for actions that are not eligible."""
    return logits if batch.eligible is None else np.where(batch.eligible.mask(), logits, -np.inf)


def settle_scores(policy: Policy, scores: Scores, name: str) -> None:
    """Check the scores of a policy while it is made, and freeze them."""
    if callable(scores):
        return
    s, labels = labelled(scores)
    s = np.asarray(s, dtype=np.float64)
    if s.ndim not in (1, 2) or s.size == 0:
        raise PolicyError(f"{name} scores must have shape (k,) or (n, k), or be a function; got {s.shape}.")
    if not np.isfinite(s).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(s))[0])
        what = f"action {where[0]}" if s.ndim == 1 else f"row {where[0]}, action {where[1]}"
        raise PolicyError(f"{name} scores must be finite; {what} has {s[where]}.")
    settle(policy, scores=frozen(s), n_actions=s.shape[-1], labels=labels)


def scores_matched(policy: Softmax | EpsilonGreedy, names: Names) -> Policy:
    """The policy with its scores as a log numbers actions and rows."""
    if policy.labels is None:
        return policy
    return replace(policy, scores=names.arranged(policy.scores, policy.labels, repr(policy)))


def _scores_of(scores: Any, batch: Batch, name: str) -> Floats:
    """The (b, k) scores of a batch, checked when a function made them."""
    if callable(scores):
        s = np.asarray(scores(batch.contexts), dtype=np.float64)
        if s.shape != (len(batch), batch.n_actions):
            raise PolicyError(f"{name}: scores must have shape {(len(batch), batch.n_actions)}; got {s.shape}.")
        bad = ~np.isfinite(s).all(axis=1)
        if bad.any():
            raise PolicyError(f"{name}: scores must be finite; row {batch.row_numbers[bad][0]} is not.")
        return s
    need_actions(name, scores.shape[-1], batch)
    if scores.ndim == 1:
        return np.broadcast_to(scores, (len(batch), len(scores)))
    need_rows(name, len(scores), batch)
    return scores[batch.rows]


def _shown(scores: Any) -> str:
    return getattr(scores, "__name__", type(scores).__name__) if callable(scores) else f"scores{scores.shape}"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Softmax(Policy):
    """pi(a|x) proportional to exp(scores(x, a) / temperature), over the eligible actions.

    >>> Softmax([0.0, 1.0, 2.0], temperature=0.5)
    Softmax(scores(3,), temperature=0.5)
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = None
    scores: Any
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature > 0):
            raise PolicyError(f"temperature must be a positive number; got {self.temperature!r}.")
        settle_scores(self, self.scores, "Softmax")
        if not callable(self.scores) and self.scores.ndim == 1 and (self.labels is None or self.labels.in_order):
            settle(self, fixed=softmax(self.scores.copy(), self.temperature))

    def __repr__(self) -> str:
        return f"Softmax({_shown(self.scores)}, temperature={self.temperature:g})"

    def matched(self, names: Names) -> Policy:
        return scores_matched(self, names)

    def probabilities(self, batch: Batch) -> Floats:
        need_order(self.labels, "Softmax")
        return softmax(among(_scores_of(self.scores, batch, "Softmax").copy(), batch), self.temperature)


@final
@dataclass(frozen=True, eq=False, repr=False)
class EpsilonGreedy(Policy):
    """The best-scored action with probability 1 - epsilon, plus epsilon spread over all k; ties go to the first.

    On a log with eligible actions: the best-scored one of these, and epsilon over all of these.

    >>> EpsilonGreedy([0.0, 1.0], epsilon=0.2)
    EpsilonGreedy(scores(2,), epsilon=0.2)
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = None
    scores: Any
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise PolicyError(f"epsilon must be in [0, 1]; got {self.epsilon!r}.")
        settle_scores(self, self.scores, "EpsilonGreedy")
        settle(self, least=None if self.n_actions is None else self.epsilon / self.n_actions)

    def __repr__(self) -> str:
        return f"EpsilonGreedy({_shown(self.scores)}, epsilon={self.epsilon:g})"

    def matched(self, names: Names) -> Policy:
        return scores_matched(self, names)

    def greedy(self, batch: Batch) -> Ints:
        """The best-scored action of each row, shape (b,)."""
        need_order(self.labels, "EpsilonGreedy")
        if not callable(self.scores) and self.scores.ndim == 1 and batch.eligible is None:
            need_actions("EpsilonGreedy", len(self.scores), batch)
            return np.full(len(batch), self.scores.argmax())
        best: Ints = batch.in_parts(
            lambda part, _: among(_scores_of(self.scores, part, "EpsilonGreedy"), part).argmax(axis=1)
        )
        return best

    def _rest(self, batch: Batch) -> Floats:
        """(b,) epsilon over the actions."""
        count = np.full(len(batch), batch.n_actions) if batch.eligible is None else batch.eligible.sizes
        return self.epsilon / count

    def support(self, batch: Batch) -> Support:
        rest = self._rest(batch)
        return Support(self.greedy(batch)[:, None], (1 - self.epsilon + rest)[:, None], rest, batch.eligible)

    def probabilities(self, batch: Batch) -> Floats:
        p = np.repeat(self._rest(batch)[:, None], batch.n_actions, axis=1)
        if batch.eligible is not None:
            p *= batch.eligible.mask()
        p[np.arange(len(batch)), self.greedy(batch)] += 1 - self.epsilon
        return p

    def logged_probability(self, batch: Batch) -> Floats:
        return self._rest(batch) + (1 - self.epsilon) * (self.greedy(batch) == batch.actions)
