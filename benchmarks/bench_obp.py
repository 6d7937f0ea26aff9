"""obp's side, with its defaults. Each task returns the values it found, by cael's name of the estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    InverseProbabilityWeighting,
    MarginalizedInverseProbabilityWeighting,
    OffPolicyEvaluation,
    SelfNormalizedDoublyRobust,
    SelfNormalizedInverseProbabilityWeighting,
)
from obp.utils import estimate_confidence_interval_by_bootstrap
from sklearn.exceptions import ConvergenceWarning

from bench_measure import RESAMPLES, Arrays, main

NAMES = {"ipw": "IPS", "snipw": "SNIPS", "dm": "DM", "dr": "DR", "sndr": "SNDR"}


def build(arrays: Arrays) -> dict[str, Any]:
    """obp's names for the arrays; its third axis is a view."""
    return {
        "context": arrays["contexts"],
        "action": arrays["actions"],
        "reward": arrays["rewards"],
        "pscore": arrays["propensities"],
        "position": None,
        "action_dist": arrays["target"][:, :, None],
        "pi_b": arrays["logging"][:, :, None],
        "estimated_rewards_by_reg_model": arrays["q_hat"][:, :, None],
        "embedding": arrays["embedding"],
    }


def ips(built: dict[str, Any]) -> dict[str, Any]:
    return {"values": {"IPS": float(InverseProbabilityWeighting().estimate_policy_value(**built))}}


def snips(built: dict[str, Any]) -> dict[str, Any]:
    return {"values": {"SNIPS": float(SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**built))}}


def dm(built: dict[str, Any]) -> dict[str, Any]:
    return {"values": {"DM": float(DirectMethod().estimate_policy_value(**built))}}


def dr(built: dict[str, Any]) -> dict[str, Any]:
    return {"values": {"DR": float(DoublyRobust().estimate_policy_value(**built))}}


def mips(built: dict[str, Any]) -> dict[str, Any]:
    embed = built["embedding"][built["action"]]
    k = built["action_dist"].shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        value = MarginalizedInverseProbabilityWeighting(n_actions=k).estimate_policy_value(action_embed=embed, **built)
    return {"values": {"MIPS": float(value)}}


def round_rewards(arrays: Arrays) -> np.ndarray:
    """What IPW's interval resamples, w_i r_i."""
    n = np.arange(len(arrays["actions"]))
    return arrays["target"][n, arrays["actions"]] / arrays["propensities"] * arrays["rewards"]


def _ends(found: dict[str, float]) -> list[float]:
    return [float(found["95.0% CI (lower)"]), float(found["95.0% CI (upper)"])]


def bootstrap(samples: np.ndarray) -> dict[str, Any]:
    """The bootstrap alone."""
    found = estimate_confidence_interval_by_bootstrap(samples, n_bootstrap_samples=RESAMPLES, random_state=0)
    return {"intervals": {"IPS": _ends(found)}}


def ips_bootstrap(built: dict[str, Any]) -> dict[str, Any]:
    """The interval as a user asks for it."""
    ipw = InverseProbabilityWeighting()
    return {"intervals": {"IPS": _ends(ipw.estimate_interval(**built, n_bootstrap_samples=RESAMPLES, random_state=0))}}


def panel(built: dict[str, Any]) -> dict[str, Any]:
    """The facade's summary: values, and intervals with its default of 100 resamples. No diagnostics."""
    estimators = [
        InverseProbabilityWeighting(),
        SelfNormalizedInverseProbabilityWeighting(),
        DirectMethod(),
        DoublyRobust(),
        SelfNormalizedDoublyRobust(),
    ]
    values, intervals = OffPolicyEvaluation(built, estimators).summarize_off_policy_estimates(
        built["action_dist"],
        estimated_rewards_by_reg_model=built["estimated_rewards_by_reg_model"],
        random_state=0,
    )
    return {
        "values": {NAMES[name]: float(v) for name, v in values["estimated_policy_value"].items()},
        "intervals": {NAMES[name]: _ends(dict(row)) for name, row in intervals.iterrows()},
    }


TASKS = {
    "ips": (build, ips),
    "snips": (build, snips),
    "dm": (build, dm),
    "dr": (build, dr),
    "mips": (build, mips),
    "bootstrap": (round_rewards, bootstrap),
    "ips_bootstrap": (build, ips_bootstrap),
    "panel": (build, panel),
}

if __name__ == "__main__":
    main(TASKS, ("obp", "numpy", "scipy", "scikit-learn"))
