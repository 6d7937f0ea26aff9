"""How a number was computed and what it assumes, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cael.results.comparison import Comparison
from cael.results.sheet import level_text

if TYPE_CHECKING:
    from cael.results.evaluation import Evaluation
    from cael.results.headline import Headline

PROPENSITIES = {
    "pass": "The logged propensities are right, and every action that the new policy plays could have been logged.",
    "warn": "The model of the logging policy is right: the logging policy used nothing but the contexts.",
    "fail": "The reward model is right: nothing else stands behind the value.",
}
"""By what the check of the evidence says: logged propensities, estimated ones, or none."""
COMMON = (
    "What a decision earns depends on its own context and action, not on other decisions.",
    "The future is like the period of the log.",
)
INTERVALS = {
    "bias_aware": "its standard error and an allowance for a bias",
    "steadied": "a standard error that is raised where few rows match",
    "normal": "its standard error, by the normal distribution",
    "t": "its standard error, by Student's t",
}


def method_of(result: Evaluation | Comparison) -> tuple[list[str], list[str]]:
    """(how it was computed, what it assumes)."""
    answer: Headline = result.answer
    best, level = answer.estimate, level_text(result.level)
    joint = isinstance(result, Comparison) or result.scorecard is not None
    units = f"{best.independent:,} clusters of rows" if best.clustered else f"{best.n:,} rows"
    how = [
        f"The value is estimated by {best.estimator} from {units}; the lift is the paired difference to "
        f"{answer.baseline_name}.",
        f"The {level} interval of the lift uses {INTERVALS.get(answer.lift.method, 'its standard error')}"
        + ("; intervals of several metrics or policies are simultaneous (max-t bootstrap)." if joint else "."),
        "The relative interval is Fieller's, which counts the error of the baseline, too.",
    ]
    more = [f"Rows are independent{' between clusters' if best.clustered else ''}."]
    if best.assumes:
        more.append(best.assumes)
    evidence = next((check.status for check in result.verdict.checks if check.name == "evidence"), "pass")
    return how, [PROPENSITIES[evidence], *COMMON, *more]
