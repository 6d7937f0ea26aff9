"""The actions of a row that CAEL looks at: all of them, or some that stand for all without an approximation.

Draw J actions from the logging policy for a row. Together with the logged action they are J + 1 independent draws from
one distribution, so that, given the set S of the J + 1 and not which of them was logged, the logged action is any of
them with probability 1 / (J + 1). The uniform distribution on S is thus an exact logging policy of the row, and every
identity of `cael.codes` holds with it in place of mu: the mean weight is 1 less what is lost, and the estimate is
unbiased where the reward is a function of the code. Actions of the target join S without logging mass; a part of the
target that has no list is represented by draws from it, in which the weights are linear. What J decides is how much
target mass finds a code that S reaches. Derivation: docs/guide/many-actions.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.arrays import NUMPY, AnyArray, Arrays, of
from cael.embedding.exact import codes
from cael.embedding.exact.rewards import SparseRewards
from cael.log.batch import Batch
from cael.policies import draws
from cael.policies.policy import Policy, draw, probabilities, probability_of, support


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """m actions of each of b rows.

    f, mu, pi: (b, m) predicted reward, logging policy (given which actions were drawn) and target. own: (b,) place of
    the logged action. ratio: (b, m) the plain weight w = pi / mu of the policies themselves, right where mu > 0.
    second: (b,) sum_a mu w^2 over all actions, or an unbiased estimate of it. lost: (b,) target mass on actions that
    the logging policy never plays. drawn: J, None where all actions are there.
    """

    f: AnyArray
    mu: AnyArray
    pi: AnyArray
    own: AnyArray
    ratio: AnyArray
    second: AnyArray
    lost: AnyArray
    drawn: int | None

    def on(self, xp: Arrays) -> Cells:
        """The same, as arrays of another kind."""
        if xp is NUMPY:
            return self
        names = ("f", "mu", "pi", "ratio", "second", "lost")
        moved: dict[str, Any] = {name: xp.asarray(getattr(self, name), xp.float64) for name in names}
        return replace(self, own=xp.asarray(self.own, xp.int64), **moved)

    def logged(self, table: AnyArray) -> AnyArray:
        """The entries (b,) of the logged actions."""
        return of(table).take_along(table, self.own[:, None])[:, 0]

    def smooth(self, bandwidth: float) -> codes.Smoothed:
        """The weights of one bandwidth; 0 is the plain ratio, infinity the on-policy mean.

        Where actions were drawn, lost mass is partly our own doing; the roughness then counts all of it as bias: it is
        the total variation distance of the target and of what the weights make of the logging policy.
        """
        if bandwidth == 0:
            return codes.Smoothed(self.ratio, self.lost, of(self.lost).zeros_like(self.lost))
        smooth = codes.rounded(self.f, self.mu, self.pi, bandwidth)
        if self.drawn is None:
            return smooth
        return codes.Smoothed(smooth.weights, smooth.lost, smooth.roughness + 0.5 * smooth.lost)


def all_cells(logging: Policy, policy: Policy, rewards: SparseRewards, fold: int, batch: Batch) -> Cells:
    """Every action of every row."""
    f, mu, pi = rewards.predict(fold, batch), probabilities(logging, batch), probabilities(policy, batch)
    sharp = codes.sharp(mu, pi)
    second = np.einsum("ij,ij->i", mu, sharp.weights**2)
    return Cells(f, mu, pi, batch.actions, sharp.weights, second, sharp.lost, None)


def drawn_cells(
    logging: Policy, policy: Policy, rewards: SparseRewards, fold: int, batch: Batch, size: int, seed: int
) -> Cells:
    """The logged action, `size` actions drawn from the logging policy, and those of the target."""
    u = draws.uniforms(seed, batch.draw_numbers, 2 * size)
    played = np.hstack([batch.actions[:, None], draw(logging, batch, u[:, :size])])
    aimed, mass, listed = _of_target(policy, batch, u[:, size:])
    none = np.zeros(aimed.shape)
    distinct, place, (mu, pi, known) = draws.merged(
        np.hstack([played, aimed]),
        np.hstack([np.full(played.shape, 1 / (size + 1)), none]),
        np.hstack([np.zeros(played.shape), mass]),
        np.hstack([np.zeros(played.shape), listed]),
    )
    actions = np.where(distinct >= 0, distinct, batch.actions[:, None])  # an empty place has no mass of any kind
    true_mu, true_pi = probability_of(logging, batch, actions), probability_of(policy, batch, actions)
    ratio = np.divide(true_pi, true_mu, out=np.zeros_like(true_pi), where=true_mu > codes.LEAST)
    own = place[:, 0]
    # Of listed actions the second moment is known; draws from the logging policy are an unbiased sample of the others.
    second = (np.where(known > 0, true_mu, mu) * ratio**2).sum(axis=1)
    lost = np.where(true_mu > codes.LEAST, 0.0, pi).sum(axis=1)
    return Cells(rewards.predict(fold, batch, actions), mu, pi, own, ratio, second, lost, size)


def _of_target(policy: Policy, batch: Batch, u: Floats) -> tuple[Ints, Floats, Floats]:
    """Actions (b, m) of the target with masses that sum to 1, and 1 where the action is a listed one."""
    lists = support(policy, batch)
    if lists is None:
        return draw(policy, batch, u), np.full(u.shape, 1 / u.shape[1]), np.zeros(u.shape)
    listed = (lists.actions >= 0).astype(np.float64)
    if not lists.rest.any():
        return lists.actions, lists.probabilities, listed
    others, drawn = lists.others(batch.n_actions), lists.unlisted(batch.n_actions, u)
    mass = np.where(drawn >= 0, (lists.rest * others / u.shape[1])[:, None], 0.0)
    return (
        np.hstack([lists.actions, drawn]),
        np.hstack([lists.probabilities, mass]),
        np.hstack([listed, np.zeros(u.shape)]),
    )
