"""cael's side. Each task returns the values it found, by the name of the estimator."""

from __future__ import annotations

from typing import Any

import cael
from bench_measure import RESAMPLES, Arrays, main


def build(arrays: Arrays) -> dict[str, Any]:
    """The log and the target: everything is checked here; nothing is copied, as on obp's side."""
    log = cael.LoggedData(
        arrays["contexts"],
        arrays["actions"],
        arrays["rewards"],
        arrays["propensities"],
        logging=cael.Tabular(arrays["logging"], copy=False),
        copy=False,
    )
    target = cael.Tabular(arrays["target"], copy=False)
    return {"log": log, "policy": target, "q": arrays["q_hat"], "embedding": arrays["embedding"]}


def build_estimate(arrays: Arrays) -> cael.Estimate:
    built = build(arrays)
    return cael.IPS().estimate(built["log"], built["policy"])


def _value(estimate: cael.Estimate) -> dict[str, Any]:
    return {"values": {estimate.estimator.partition("(")[0]: estimate.value}}


def ips(built: dict[str, Any]) -> dict[str, Any]:
    return _value(cael.IPS().estimate(built["log"], built["policy"]))


def snips(built: dict[str, Any]) -> dict[str, Any]:
    return _value(cael.SNIPS().estimate(built["log"], built["policy"]))


def dm(built: dict[str, Any]) -> dict[str, Any]:
    return _value(cael.DM(cael.FixedOutcome(built["q"])).estimate(built["log"], built["policy"]))


def dr(built: dict[str, Any]) -> dict[str, Any]:
    return _value(cael.DR(cael.FixedOutcome(built["q"])).estimate(built["log"], built["policy"]))


def mips(built: dict[str, Any]) -> dict[str, Any]:
    return _value(cael.MIPS(built["embedding"]).estimate(built["log"], built["policy"]))


def bootstrap(estimate: cael.Estimate) -> dict[str, Any]:
    """The interval of an estimate that is there."""
    found = estimate.interval(method="studentised", resamples=RESAMPLES)
    return {"intervals": {"IPS": [found.low, found.high]}}


def ips_bootstrap(built: dict[str, Any]) -> dict[str, Any]:
    """The estimate and its interval."""
    return bootstrap(cael.IPS().estimate(built["log"], built["policy"]))


def panel(arrays: Arrays) -> dict[str, Any]:
    """From the arrays to every estimate with interval and diagnostics; building the log is counted."""
    built = build(arrays)
    outcome = cael.FixedOutcome(built["q"])
    problem = cael.Problem(built["log"], built["policy"])
    estimators = (
        cael.LoggedMean(),
        cael.IPS(),
        cael.SNIPS(),
        cael.DM(outcome),
        cael.DR(outcome),
        cael.SNDR(outcome),
    )
    return _said([each.solve(problem) for each in estimators])


def evaluate(arrays: Arrays) -> dict[str, Any]:
    """The public verb with its defaults: it trains a cross-fitted outcome model and is given none."""
    built = build(arrays)
    return _said(list(cael.evaluate(built["log"], built["policy"])))


def _said(estimates: list[cael.Estimate]) -> dict[str, Any]:
    names = [each.estimator.partition("(")[0] for each in estimates]
    intervals = [each.interval(method="studentised", resamples=RESAMPLES) for each in estimates]
    return {
        "values": {name: each.value for name, each in zip(names, estimates, strict=True)},
        "intervals": {name: [each.low, each.high] for name, each in zip(names, intervals, strict=True)},
        "diagnostics": {name: each.diagnostics.to_dict() for name, each in zip(names, estimates, strict=True)},
    }


TASKS = {
    "ips": (build, ips),
    "snips": (build, snips),
    "dm": (build, dm),
    "dr": (build, dr),
    "mips": (build, mips),
    "bootstrap": (build_estimate, bootstrap),
    "ips_bootstrap": (build, ips_bootstrap),
    "panel": (dict, panel),
    "evaluate": (dict, evaluate),
}

if __name__ == "__main__":
    main(TASKS, ("cael", "numpy", "scipy", "scikit-learn"))
