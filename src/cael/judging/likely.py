"""Are the logged actions as likely as the logging policy says that its own actions are?"""

from __future__ import annotations

import math

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.columns import Surprise
from cael.engine.moments import Combination
from cael.judging.survey import further
from cael.policies.policy import probabilities

ROUNDING = 1e-14
"""A standard error that is smaller, as a share of the mean, is rounding of a column without spread."""
TINY = 1e-300
PLAIN = 0.1
"""Two tests by the rows alone whose p-value is not below this need no exact moments."""


def likeliness(answer: Answer) -> tuple[float, float] | None:
    """(mean, p-value) of the surprise further from 0, for both tests together; None: the policy is not known.

    Rows show too little of a rare action's surprise: of 120 rows of an epsilon-greedy policy (0.05) one in forty logs
    was rejected at 0.1%. So where the rows alone would reject, the moments that the policy itself has count, too.
    """
    if answer.log.logging is None:
        return None
    scores = [answer.single(Surprise(relative)) for relative in (False, True)]
    found = further([(score.value, z_of(score)) for score in scores])
    if found[1] >= PLAIN:
        return found
    return further([(score.value, known_z(score, *m)) for score, m in zip(scores, moments_of(answer), strict=True)])


def z_of(score: Combination, expected: float = 0.0) -> float:
    """The distance of a column's mean from what is expected, in standard errors; 0 where it has no spread."""
    error = score.stderr
    return (score.value - expected) / error if error > ROUNDING * abs(score.value) else 0.0


def known_z(score: Combination, variance: float, third: float) -> float:
    """The same by the larger of two errors, that of the rows and that of the policy, as a normal distance that is as
    unlikely. third: central moment of a row."""
    error = max(score.stderr, math.sqrt(variance / score.n))
    if error <= ROUNDING * abs(score.value):
        return 0.0
    z = score.value / error
    spread = variance**1.5  # 0 where the policy plays one action, or all alike
    skew = max(math.copysign(1.0, z) * third, 0.0) / spread / math.sqrt(score.n) if spread > 0 else 0.0
    return math.copysign(without_skew(abs(z), skew), z)


def without_skew(z: float, skew: float) -> float:
    """The normal quantile f of a quantile z of a skewed mean, z = f + skew (f^2 - 1) / 6 (Cornish and Fisher), towards
    its long tail; never further than z."""
    if skew < ROUNDING:
        return z
    return min(z, 3 / skew * (math.sqrt(1 + 2 * skew / 3 * (z + skew / 6)) - 1))


def moments_of(answer: Answer) -> Floats:
    """(2, 2): variance and third central moment of the surprises of a row under the policy, means over the first rows
    of the log."""
    log, popularity = answer.log, answer.work.popularity
    assert log.logging is not None
    assert popularity is not None
    probe = log.probe(contexts=log.logging.contexts)
    policy = log.logging.on(probe)
    sums = probe.batch().in_parts(lambda part, _: central(probabilities(policy, part), popularity))
    return np.asarray(sums.mean(axis=0)).reshape(2, 2)


def central(p: Floats, popularity: Floats) -> Floats:
    """(b, 4): second and third central moments of log p and of log p - popularity over the actions of each row."""
    logs, sums = np.log(np.maximum(p, TINY)), []
    for score in (logs, logs - popularity):
        apart = score - (p * score).sum(axis=1, keepdims=True)
        sums += [(p * apart**2).sum(axis=1), (p * apart**3).sum(axis=1)]
    return np.stack(sums, axis=1)
