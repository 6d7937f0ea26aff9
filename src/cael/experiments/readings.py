"""What each reading of the paper gives on its default problem: bias, variance, MSE and mean weight, with their errors.

    python -m cael.experiments.readings table   --out docs/results/readings.json     (make readings)
    python -m cael.experiments.readings literal --out docs/results/literal.json
    python -m cael.experiments.readings search  --out docs/results/search.json [--jobs 8]
    python -m cael.experiments.readings page    --out docs/results

All trials of a reading are trained at once. Seeds 0..trials-1 make the logs; trial t is trained with seed t. Rows that
the file has already are not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, final

import numpy as np

import cael
from cael.common.types import Floats
from cael.embedding.settings import objective
from cael.estimators.problem import Problem
from cael.worlds import PaperWorld

ROWS = 1000


@final
@dataclass(frozen=True)
class Summary:
    """Over trials: bias, variance and MSE against the truth, each with its Monte Carlo standard error."""

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


def summarise(
    name: str, settings: dict[str, Any], values: Floats, weights: Floats | None, truth: float, seconds: float
) -> Summary:
    """values: (trials,) estimates; weights: (trials,) mean weights."""
    n, error = len(values), values - truth
    centred = (values - values.mean()) ** 2
    scale = np.sqrt(n)
    return Summary(
        name, settings, n,
        float(error.mean()), float(values.std(ddof=1) / scale),
        float(values.var(ddof=1)), float(centred.std(ddof=1) / scale),
        float((error**2).mean()), float((error**2).std(ddof=1) / scale),
        None if weights is None else float(weights.mean()),
        None if weights is None else float(weights.std(ddof=1) / scale),
        seconds,
    )  # fmt: skip


def problems(trials: int, first: int = 0, change: str = "raw") -> tuple[list[Problem], float]:
    """Logs of the paper's default world, and the truth. change: rewards "raw", "centred", or "tenth"."""
    world = PaperWorld()
    logs = [world.sample(ROWS, seed) for seed in range(first, first + trials)]
    made = [replace_rewards(log, change) for log in logs]
    return [Problem(log, world.target) for log in made], world.value(world.target)


def replace_rewards(log: cael.LoggedData, change: str) -> cael.LoggedData:
    if change == "raw":
        return log
    r = log.rewards - log.rewards.mean() if change == "centred" else log.rewards / 10
    return cael.LoggedData(
        log.contexts, log.actions, r, logging=log.logging, n_actions=log.n_actions, action_features=log.action_features
    )


def restored(values: Floats, trials: int, first: int, change: str) -> Floats:
    """Estimates on the scale of the raw rewards again."""
    if change == "centred":
        world = PaperWorld()
        return values + np.array([world.sample(ROWS, seed).rewards.mean() for seed in range(first, first + trials)])
    return values * 10 if change == "tenth" else values


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
    given, truth = problems(job.trials, job.first, job.change)
    start = time.perf_counter()
    if hasattr(job.estimator, "solve_many"):
        found = job.estimator.solve_many(given, list(range(job.first, job.first + job.trials)))
    else:
        found = [job.estimator.solve(problem) for problem in given]
    seconds = time.perf_counter() - start
    values = restored(np.array([each.value for each in found]), job.trials, job.first, job.change)
    weights = [each.diagnostics.mean_weight for each in found]
    mean_weights = None if any(weight is None for weight in weights) else np.array(weights, dtype=float)
    return summarise(job.name, job.settings, values, mean_weights, truth, seconds)


@final
@dataclass
class Runner:
    """Makes rows, several at once, and keeps them in a file that a later run goes on from."""

    out: Path
    jobs: int = 1
    rows: list[Summary] = field(default_factory=list)

    def __call__(self, wanted: Sequence[Job]) -> list[Summary]:
        """The rows of some jobs, in their order."""
        from joblib import Parallel, delayed

        have = {(row.name, row.trials): row for row in self._before()}
        todo = [job for job in wanted if (job.name, job.trials) not in have]
        made = Parallel(n_jobs=self.jobs, return_as="generator")(delayed(run)(job) for job in todo)
        found = []
        for job in wanted:
            row = have.get((job.name, job.trials)) or next(made)
            print(f"{row.name:60s} mse {row.mse:.3f} ± {row.mse_error:.3f}  {row.seconds:.1f} s", file=sys.stderr)
            found.append(row)
            self.keep([row])
        return found

    def _before(self) -> list[Summary]:
        return [Summary(**row) for row in json.loads(self.out.read_text())] if self.out.exists() else []

    def keep(self, rows: Sequence[Summary]) -> None:
        """Write all rows so far; what the file had before and nobody has asked for yet stays behind them."""
        self.rows += rows
        names = {(row.name, row.trials) for row in self.rows}
        others = [row for row in self._before() if (row.name, row.trials) not in names]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps([asdict(row) for row in [*self.rows, *others]], indent=1) + "\n")


def baselines(trials: int, device: str) -> list[Job]:
    """What the paper compares with, and what it does not."""
    training = cael.Training(device=device)
    panel: dict[str, Any] = {
        "LoggedMean": cael.LoggedMean(),
        "IPS": cael.IPS(),
        "SNIPS": cael.SNIPS(),
        "NetworkDM": cael.NetworkDM(cael.NetworkOutcome(training=training)),
        "AELMIPS, repository settings": cael.AELMIPS(device=device),
        "AELMIPS, trained": cael.AELMIPS("trained", device=device),
        "CAELMIPS, preset paper": cael.CAELMIPS(training=training),
    }
    return [Job(name, estimator, trials) for name, estimator in panel.items()]


def reward_only(name: str, trials: int, device: str, first: int = 0) -> Job:
    told = {"alpha": 0.0, "beta": 0.0}
    estimator = cael.CAELMIPS(objective=objective("paper", **told), training=cael.Training(device=device))
    return Job(name, estimator, trials, first, settings=told)


def table(trials: int, device: str) -> list[Job]:
    """Every reading: posterior gradient x r_hat gradient x features x n."""
    training = cael.Training(device=device)
    jobs = [*baselines(trials, device), reward_only("reward loss only (alpha = beta = 0)", trials, device)]
    for through, inside, features, n in product((False, True), (True, False), ("e", "xe"), ("dataset", "batch")):
        changes = {"posterior_gradient": through, "reward_gradient": inside, "features": features, "variance_n": n}
        reading = cael.CAELMIPS(objective=objective("paper", **changes), training=training)
        jobs.append(Job(" ".join(f"{k}={v}" for k, v in changes.items()), reading, trials, settings=changes))
    return jobs


def literal(trials: int) -> Iterator[Summary]:
    """The two inner solvers side by side, on the CPU: scikit-learn from scratch on each batch, and ours."""
    from joblib import Parallel, delayed

    truth = problems(1)[1]
    for inner in ("sklearn", "softmax"):
        estimator = cael.CAELMIPS(objective=objective("paper", inner=inner))
        start = time.perf_counter()
        found = np.array(Parallel(n_jobs=-1)(delayed(_one)(estimator, seed) for seed in range(trials)))
        name = f"preset paper, inner={inner}, on the CPU"
        row = summarise(name, {"inner": inner}, found[:, 0], found[:, 1], truth, time.perf_counter() - start)
        print(row, file=sys.stderr, flush=True)
        yield row


def _one(estimator: Any, seed: int) -> tuple[float, float]:
    found = estimator.solve_many(problems(1, seed)[0], [seed])[0]
    return found.value, found.diagnostics.mean_weight


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
        rows = make([search_job(each, few, first, device, f"stage {stage}: ") for each in drawn])
        kept = sorted(range(len(rows)), key=lambda i: rows[i].mse)[: max(3, count // 5)]
        drawn = [drawn[i] for i in kept]
    twins = [(each, {**each, "posterior_gradient": False}) for each in drawn[:3]]
    again = [
        search_job(told, trials, AGAIN, device, prefix)
        for pair in twins for told, prefix in zip(pair, ("again: ", "constant: "), strict=True)
    ]  # fmt: skip
    preset = cael.CAELMIPS(training=cael.Training(device=device))
    again.append(Job("again: preset paper", preset, trials, AGAIN))
    make([*again, reward_only("again: reward loss only", trials, device, AGAIN)])


def search_job(drawn: dict[str, Any], trials: int, first: int, device: str, prefix: str) -> Job:
    kept = {k: v for k, v in drawn.items() if k not in ("learning_rate", "iterations", "change")}
    estimator = cael.CAELMIPS(
        objective=objective("through", **kept),
        training=cael.Training(
            iterations=int(drawn["iterations"]), learning_rate=float(drawn["learning_rate"]), device=device
        ),
    )
    name = prefix + " ".join(f"{k}={v}" for k, v in drawn.items())
    return Job(name, estimator, trials, first, str(drawn["change"]), drawn)


def markdown(rows: Sequence[dict[str, Any]], names: Callable[[dict[str, Any]], str]) -> str:
    """A table of summaries, each number with its Monte Carlo standard error."""

    def pair(row: dict[str, Any], name: str, digits: int) -> str:
        if row[name] is None:
            return ""
        return f"{row[name]:.{digits}f} ± {row[name + '_error']:.{digits}f}"

    lines = ["| reading | trials | bias | variance | MSE | mean weight |", "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        cells = [names(row), str(row["trials"]), *(pair(row, name, 3) for name in ("bias", "variance", "mse"))]
        lines.append("| " + " | ".join([*cells, pair(row, "mean_weight", 2)]) + " |")
    return "\n".join(lines) + "\n"


def reading_name(row: dict[str, Any]) -> str:
    told = row["settings"]
    if "posterior_gradient" not in told:
        return row["name"]
    through = "gradient through the posterior" if told["posterior_gradient"] else "posterior constant"
    inside = "r_hat differentiated" if told["reward_gradient"] else "r_hat detached"
    return f"{through}, {inside}, features {told['features']}, n of the {told['variance_n']}"


def search_name(row: dict[str, Any]) -> str:
    stage, _, rest = row["name"].partition(": ")
    told = ", ".join(f"{name} {value}" for name, value in row["settings"].items() if name != "posterior_gradient")
    where = {"again": "**new logs:** ", "constant": "**new logs, posterior constant:** "}.get(stage, f"{stage}: ")
    return where + (told or rest)


def search_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows on new logs in their order, then the stages, the last first and the best first."""
    new = [row for row in rows if not row["name"].startswith("stage")]
    stages = sorted({row["name"].partition(":")[0] for row in rows if row["name"].startswith("stage")}, reverse=True)
    return new + [row for stage in stages for row in sorted((r for r in rows if r["name"].startswith(stage)), key=_mse)]


def _mse(row: dict[str, Any]) -> float:
    return float(row["mse"])


def page(folder: Path) -> None:
    """Render the results in `folder` as the tables that the documentation includes."""
    for name, label in (("readings", reading_name), ("literal", reading_name), ("search", search_name)):
        if not (folder / f"{name}.json").exists():
            continue
        rows = json.loads((folder / f"{name}.json").read_text())
        (folder / f"{name}.inc").write_text(markdown(search_order(rows) if name == "search" else rows, label))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "literal", "search", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--count", type=int, default=60, help="settings that the search draws")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="rows that are made at once")
    told = parser.parse_args(arguments)
    make = Runner(told.out, told.jobs)
    if told.what == "page":
        page(told.out)
    elif told.what == "table":
        make(table(told.trials, told.device))
    elif told.what == "literal":
        for row in literal(told.trials):
            make.keep([row])
    else:
        search(told.trials, told.device, told.count, make)


if __name__ == "__main__":
    main()
