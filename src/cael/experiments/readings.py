"""Search for a setting in which the gradient through the posterior helps, on the paper's default problem.

    python -m cael.experiments.readings search  --out docs/results/search.json [--jobs 8]
    python -m cael.experiments.readings page    --out docs/results

All trials of a setting are trained at once; trial t is trained with seed t, which also makes its log. Rows that the
file has already are not made again. What each reading gives is an experiment: `cael reproduce readings`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

import cael
from cael.embedding.settings import objective
from cael.estimators.problem import Problem
from cael.experiments import markdown as md
from cael.experiments.ledger import in_parallel, read_json
from cael.experiments.summary import accuracy_of
from cael.worlds import PaperWorld

ROWS = 1000


@final
@dataclass(frozen=True)
class Summary:
    """An `Accuracy` over trials, and the mean weight with its Monte Carlo standard error."""

    name: str
    settings: dict[str, Any]
    trials: int
    bias: float
    bias_error: float
    variance: float
    variance_error: float
    mse: float
    mse_error: float
    mean_weight: float | None
    mean_weight_error: float | None
    seconds: float


def problems(trials: int, first: int = 0) -> tuple[list[Problem], float]:
    """Logs of the paper's default world, and the truth."""
    world = PaperWorld()
    seeds = range(first, first + trials)
    return [Problem(world.sample(ROWS, seed), world.target) for seed in seeds], world.value(world.target)


def changed(problem: Problem, change: str) -> tuple[Problem, float, float]:
    """The same with rewards "raw", "centred", or a "tenth", and the shift and scale that lead back from its value."""
    log = problem.log
    shift = float(log.rewards.mean()) if change == "centred" else 0.0
    scale = 10.0 if change == "tenth" else 1.0
    other = cael.LoggedData(
        log.contexts, log.actions, (log.rewards - shift) / scale, logging=log.logging, n_actions=log.n_actions,
        action_features=log.action_features,
    )  # fmt: skip
    return Problem(other, problem.policy), shift, scale


@final
@dataclass(frozen=True)
class Job:
    """A row of a table that is to be made: an estimator on logs of the seeds from `first` on."""

    name: str
    estimator: Any
    trials: int
    first: int = 0
    change: str = "raw"
    settings: dict[str, Any] = field(default_factory=dict)


def run(job: Job) -> Summary:
    """One row of a table."""
    raw, truth = problems(job.trials, job.first)
    logs, shifts, scales = zip(*(changed(problem, job.change) for problem in raw), strict=True)
    start = time.perf_counter()
    if hasattr(job.estimator, "solve_many"):
        estimates = job.estimator.solve_many(list(logs), list(range(job.first, job.first + job.trials)))
    else:
        estimates = [job.estimator.solve(problem) for problem in logs]
    seconds = time.perf_counter() - start
    values = np.array([estimate.value for estimate in estimates]) * scales + shifts
    weights = np.array([estimate.diagnostics.mean_weight for estimate in estimates], dtype=float)
    known = not np.isnan(weights).any()
    return Summary(
        **vars(accuracy_of(values - truth)), name=job.name, settings=job.settings, trials=job.trials,
        mean_weight=float(weights.mean()) if known else None,
        mean_weight_error=float(weights.std(ddof=1) / np.sqrt(job.trials)) if known else None, seconds=seconds,
    )  # fmt: skip


@final
class Runner:
    """Makes rows, several at once, and keeps them in a file that a later run goes on from."""

    def __init__(self, out: Path, jobs: int = 1) -> None:
        self.out, self.jobs = out, jobs
        self.rows: dict[tuple[str, int], Summary] = {}
        self.before = {(row["name"], row["trials"]): Summary(**row) for row in read_json(out, [])}

    def __call__(self, wanted: Sequence[Job]) -> list[Summary]:
        """The rows of some jobs, in their order; what the file had before and nobody asked for stays behind them."""
        jobs = {(job.name, job.trials): job for job in wanted}
        missing = [job for key, job in jobs.items() if key not in self.before and key not in self.rows]
        made = in_parallel(run, [(job,) for job in missing], self.jobs, ordered=True)
        for key in jobs:
            row = self.rows.get(key) or self.before.pop(key, None) or next(made)
            print(f"{row.name:60s} mse {row.mse:.3f} ± {row.mse_error:.3f}  {row.seconds:.1f} s", file=sys.stderr)
            self.rows[key] = row
            self.out.parent.mkdir(parents=True, exist_ok=True)
            kept = [asdict(row) for row in (*self.rows.values(), *self.before.values())]
            self.out.write_text(json.dumps(kept, indent=1) + "\n")
        return [self.rows[job.name, job.trials] for job in wanted]


def reward_only(name: str, trials: int, device: str, first: int = 0) -> Job:
    settings = {"alpha": 0.0, "beta": 0.0}
    estimator = cael.CAELMIPS(
        objective=objective("constant-posterior", **settings), training=cael.Training(device=device)
    )
    return Job(name, estimator, trials, first, settings=settings)


GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "iterations": (100, 300, 1000),
    "C": (1.0, 10.0, 100.0),
    "change": ("raw", "centred", "tenth"),
    "alpha": (1e-3, 1e-2, 1e-1, 1.0, 10.0),
    "beta": (0.0, 1e-4, 1e-3, 1e-2, 1e-1),
    "bias": ("gini", "sharp"),
    "variance": ("paper", "direct"),
    "reward_gradient": (True, False),
    "features": ("e", "xe"),
}
STAGES = ((6, 1000), (16, 1100))
"""Trials, and the first seed, of the stages of the search: all that were drawn, then the better fifth."""
AGAIN = 2000
"""The first seed of the logs on which the best are run again."""


def search(trials: int, device: str, count: int, make: Callable[[Sequence[Job]], list[Summary]]) -> None:
    """Random search for a setting in which the gradient through the posterior helps.

    Every setting is tried on a few logs, the better fifth on others, and the best three again on `trials` new logs;
    there beside each: the same setting with the posterior held constant, and the preset and the reward loss alone.
    """
    rng = np.random.default_rng(0)
    drawn = [{name: values[int(rng.integers(len(values)))] for name, values in GRID.items()} for _ in range(count)]
    for stage, (few, first) in enumerate(STAGES, start=1):
        rows = make([search_job(settings, few, first, device, f"stage {stage}: ") for settings in drawn])
        kept = sorted(range(len(rows)), key=lambda i: rows[i].mse)[: max(3, count // 5)]
        drawn = [drawn[i] for i in kept]
    again = [
        search_job({**settings, **change}, trials, AGAIN, device, prefix)
        for settings in drawn[:3]
        for prefix, change in (("again: ", {}), ("constant: ", {"posterior_gradient": False}))
    ]
    preset = cael.CAELMIPS(training=cael.Training(device=device))
    again.append(Job("again: preset constant-posterior", preset, trials, AGAIN))
    make([*again, reward_only("again: reward loss only", trials, device, AGAIN)])


def search_job(drawn: dict[str, Any], trials: int, first: int, device: str, prefix: str) -> Job:
    kept = {k: v for k, v in drawn.items() if k not in ("learning_rate", "iterations", "change")}
    estimator = cael.CAELMIPS(
        objective=objective("through-posterior", **kept),
        training=cael.Training(
            iterations=int(drawn["iterations"]), learning_rate=float(drawn["learning_rate"]), device=device
        ),
    )
    name = prefix + " ".join(f"{k}={v}" for k, v in drawn.items())
    return Job(name, estimator, trials, first, str(drawn["change"]), drawn)


def markdown(rows: Sequence[dict[str, Any]], names: Callable[[dict[str, Any]], str]) -> str:
    """A table of summaries, each number with its Monte Carlo standard error."""

    def pair(row: dict[str, Any], name: str, digits: int) -> str:
        return "" if row[name] is None else f"{row[name]:.{digits}f} ± {row[name + '_error']:.{digits}f}"

    columns = {"bias": 3, "variance": 3, "mse": 3, "mean_weight": 2}
    cells = [
        [names(row), str(row["trials"]), *(pair(row, name, digits) for name, digits in columns.items())] for row in rows
    ]
    return md.table(["reading", "trials", "bias", "variance", "MSE", "mean weight"], cells)


def search_name(row: dict[str, Any]) -> str:
    stage, _, rest = row["name"].partition(": ")
    changes = ", ".join(f"{name} {value}" for name, value in row["settings"].items() if name != "posterior_gradient")
    where = {"again": "**new logs:** ", "constant": "**new logs, posterior constant:** "}.get(stage, f"{stage}: ")
    return where + (changes or rest)


def search_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows on new logs in their order, then the stages, the last first and the best first."""
    new = [row for row in rows if not row["name"].startswith("stage")]
    tried = sorted((row for row in rows if row["name"].startswith("stage")), key=lambda row: row["mse"])
    return new + sorted(tried, key=lambda row: row["name"].partition(":")[0], reverse=True)


def page(folder: Path) -> None:
    """Render the results in `folder` as the table that the documentation includes."""
    rows = read_json(folder / "search.json", None)
    if rows is not None:
        (folder / "search.inc").write_text(markdown(search_order(rows), search_name))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--count", type=int, default=60, help="settings that the search draws")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="rows that are made at once")
    options = parser.parse_args(arguments)
    if options.what == "page":
        page(options.out)
    else:
        search(options.trials, options.device, options.count, Runner(options.out, options.jobs))


if __name__ == "__main__":
    main()
