"""Remedies: what to do about a check that warns or fails, in one sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from cael.judging.verdict import Check, by_gravity

EXPLORE = (
    "Explore more where the new policy goes: the number rests on the reward model there, and more rows would hardly "
    "help."
)
PROPENSITIES = "Log the propensity of every decision: estimated ones can be wrong by more than the lift allows."
ADVICE = {
    "evidence": PROPENSITIES,
    "effective_rows": "Collect more rows, explore more, or evaluate a policy nearer to the logging policy.",
    "smoothed_rows": "Collect more rows, explore more, or evaluate a policy nearer to the logging policy.",
    "unsmoothed_rows": EXPLORE,
    "successes": "Collect more rows: too few successes carry the weight.",
    "largest_share": "Cap the rewards or explore more, so that no single row decides.",
    "skewness": "Cap extreme rewards (cap=) or collect more rows.",
    "reward_tail": "Cap extreme rewards (cap=), or evaluate a metric with bounds.",
    "tail_index": "Raise the smallest propensities of the logging policy (explore more).",
    "mean_weight": "Check the propensities, and that no rows of the log are missing.",
    "support": "Let the logging policy play these actions sometimes; no analysis can replace that.",
    "disagreement": "Check the propensities and the join of rewards to rows: the estimators should agree.",
    "frequencies": "Check the propensities of the actions that are named.",
    "surprise": "Check that the logging policy is the one that really ran.",
    "propensity_column": "Check that propensities, actions and contexts come from the same rows.",
    "action_effect": "Check that actions and rewards come from the same rows; if they do, collect more rows.",
    "drift": "Evaluate a shorter and recent period, or compare the periods (windows).",
    "bias": EXPLORE,
    "dropped": "Correct the invalid rows instead of leaving them out.",
    "trained_here": "Evaluate on rows that the policy's model was not trained on.",
    "sensitivity": PROPENSITIES,
    "logging_fit": "Log the probabilities of all actions, or give the logging policy.",
    "calibration": "Use the estimator whose intervals held on planted rewards.",
}
"""By the name of a check of a verdict."""


def advice_on(checks: Sequence[Check], most: int = 2) -> list[str]:
    """What to do about the checks that warn or fail, worst first, each sentence once."""
    doubtful = [check for check in by_gravity(checks) if check.status in ("warn", "fail")]
    return list(dict.fromkeys(ADVICE[check.name] for check in doubtful if check.name in ADVICE))[:most]
