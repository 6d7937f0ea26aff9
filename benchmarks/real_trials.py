"""Real trials: the value of "everybody gets this arm" from a log that was made unfair, against people who were held
out.

python benchmarks/real_trials.py --splits 40 --write     # docs/results/real_trials.json and .inc

Each split draws half of the people. Of their rows, those whose arm is not the favourite of a rule of the contexts are
kept with probability KEEP, so the log is one of a logging policy that is known and depends on the contexts: sicker
patients are given one treatment, older people one plan. The truth is the mean of the arm among the other half, which
was randomised. The splits share their data, so the numbers describe these trials and are no independent repetitions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import cael
from cael.datasets import Trial, actg175, rand_hie
from cael.policies.policy import Tabular

KEEP = 0.25
ESTIMATORS = ("mean of the rows with the arm", "IPS", "SNIPS", "DM", "DR", "SNDR")
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
TRIALS = {"ACTG 175": (actg175, "cd40"), "RAND HIE": (rand_hie, "xage")}


def everywhere(trial: Trial) -> Trial:
    """The rows of the sites that offered every arm; elsewhere the value of an arm cannot be known."""
    return trial.take(trial.probabilities.min(axis=1) > 0)


def favourites(trial: Trial, by: str) -> Any:
    """(n,) the arm that the rule prefers: the k-th part of the people in the order of a context gets arm k."""
    context = trial.contexts[:, trial.names.index(by)]
    k = len(trial.arm_names)
    return np.searchsorted(np.quantile(context, np.arange(1, k) / k), context, "right")


def unfair(trial: Trial, by: str, rng: np.random.Generator) -> cael.LoggedData:
    """The log of a policy that prefers the favourites, by leaving rows out; its probabilities are exact."""
    k = len(trial.arm_names)
    share = np.where(np.arange(k) == favourites(trial, by)[:, None], 1.0, KEEP)
    p = trial.probabilities * share
    kept = rng.random(len(trial)) < share[np.arange(len(trial)), trial.arms]
    p = (p / p.sum(axis=1, keepdims=True))[kept]
    rows = trial.take(kept)
    return cael.LoggedData(rows.contexts, rows.arms, rows.outcomes, logging=Tabular(p), clusters=rows.people)


def weighted_mean(values: Any, weights: Any, people: Any) -> tuple[float, float]:
    """A weighted mean and its standard error, over people."""
    mean = float((weights * values).sum() / weights.sum())
    sums = np.bincount(people, weights * (values - mean))
    return mean, float(np.sqrt((sums**2).sum()) / weights.sum())


def held_out(trial: Trial, arm: int) -> tuple[float, float]:
    """The mean of an arm among people who were drawn for it, and its standard error."""
    weights = (trial.arms == arm) / trial.propensities
    people = np.arange(len(trial)) if trial.people is None else trial.people
    return weighted_mean(trial.outcomes, weights, people)


def split(trial: Trial, by: str, seed: int) -> list[dict[str, Any]]:
    """For each arm: the truth of the one half, and what each estimator says from the other."""
    rng = np.random.default_rng([seed, 0x17A1])
    people = np.arange(len(trial)) if trial.people is None else trial.people
    chosen = np.isin(people, rng.permutation(people.max() + 1)[: (people.max() + 1) // 2])
    log, others = unfair(trial.take(chosen), by, rng), trial.take(~chosen)
    rows = []
    for arm, name in enumerate(trial.arm_names):
        policy = np.eye(len(trial.arm_names))[arm]
        values = {
            type(e).__name__: e.estimate(log, policy)
            for e in (cael.IPS(), cael.SNIPS(), cael.DM(), cael.DR(), cael.SNDR())
        }
        found = {key: (value.value, value.stderr) for key, value in values.items()}
        clusters = np.arange(len(log)) if log.clusters is None else np.unique(log.clusters, return_inverse=True)[1]
        found[ESTIMATORS[0]] = weighted_mean(log.rewards, (log.actions == arm).astype(float), clusters)
        rows.append({"arm": name, "truth": held_out(others, arm), "found": found, "rows": len(log)})
    return rows


def summary(trial: Trial, by: str, splits: int) -> dict[str, Any]:
    """Over all splits, for each arm and estimator: mean difference to the truth, its root mean square, and coverage."""
    runs = [split(trial, by, seed) for seed in range(splits)]
    arms = []
    for at, name in enumerate(trial.arm_names):
        truth = np.array([run[at]["truth"] for run in runs])
        told = {}
        for each in ESTIMATORS:
            found = np.array([run[at]["found"][each] for run in runs])
            apart = found[:, 0] - truth[:, 0]
            told[each] = {
                "difference": float(apart.mean()), "rms": float(np.sqrt((apart**2).mean())),
                "coverage": float((np.abs(apart) <= 1.96 * np.hypot(found[:, 1], truth[:, 1])).mean()),
            }  # fmt: skip
        arms.append(
            {"arm": name, "truth": float(truth[:, 0].mean()), "noise": float(truth[:, 1].mean()), "estimators": told}
        )
    return {"splits": splits, "rows": float(np.mean([run[0]["rows"] for run in runs])), "arms": arms}


def page(results: dict[str, Any]) -> str:
    """The tables, from what was computed."""
    parts = []
    for name, result in results.items():
        parts += [f"\n**{name}**: {result['splits']} splits, logs of about {result['rows']:,.0f} rows.\n"]
        parts += [
            "| arm | truth (its error) | " + " | ".join(ESTIMATORS) + " |",
            "|---|--:|" + "--:|" * len(ESTIMATORS),
        ]
        for arm in result["arms"]:
            cells = [
                f"{e['difference']:+.3g} ({e['rms']:.3g}), {e['coverage']:.0%}"
                for e in (arm["estimators"][x] for x in ESTIMATORS)
            ]
            parts.append(f"| {arm['arm']} | {arm['truth']:.4g} ({arm['noise']:.2g}) | {' | '.join(cells)} |")
    return "\n".join(parts).lstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    results = {name: summary(everywhere(read()), by, given.splits) for name, (read, by) in TRIALS.items()}
    print(page(results))
    if given.write:
        (RESULTS / "real_trials.json").write_text(json.dumps(results, indent=1) + "\n")
        (RESULTS / "real_trials.inc").write_text(page(results))


if __name__ == "__main__":
    main()
