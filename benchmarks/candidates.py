"""How many actions CAEL should draw for a row: its error against the number of draws, where all actions can be visited.

    python benchmarks/candidates.py --actions 500 --rows 1000 --logs 20

The networks of a log are trained once and serve every number of draws, so only the draws differ.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

import cael
from cael.embedding.exact.flagship import solved
from cael.embedding.exact.rewards import sparse_rewards
from cael.estimators.problem import Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--draws", default="4,16,64,256,all")
    given = parser.parse_args()
    estimator = cael.CAEL()
    world = cael.worlds.PaperWorld(n_actions=given.actions)
    truth = world.value(world.target)
    seeds = list(range(5000, 5000 + given.logs))
    logs = [world.sample(given.rows, seed) for seed in seeds]
    fitted = sparse_rewards(logs, estimator.growth, estimator.folds, seeds)
    print("| draws | bias | mean squared error | its standard error | covered | lost mass | seconds for the weights |")
    print("|---|---|---|---|---|---|---|")
    for each in given.draws.split(","):
        candidates, start = each if each == "all" else int(each), time.process_time()
        found = []
        for log, rewards, seed in zip(logs, fitted, seeds, strict=True):
            one = replace(estimator, candidates=candidates, seed=seed)
            found.append(solved(Problem(log, world.target), one, {one.trained_by: rewards}))
        spent = (time.process_time() - start) / len(logs)
        errors = np.array([e.value - truth for e in found])
        squares = errors**2
        covered = np.mean([truth in e.interval(method="bias_aware") for e in found])
        lost = np.mean([e.diagnostics.embedding.lost_mass for e in found if e.diagnostics.embedding])
        print(
            f"| {each} | {errors.mean():+.3f} | {squares.mean():.4f} | {squares.std(ddof=1) / len(squares) ** 0.5:.4f} "
            f"| {covered:.0%} | {lost:.1%} | {spent:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
