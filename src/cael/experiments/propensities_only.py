"""What CAEL loses where a log has the propensity of the logged action alone, in the worlds of the suite.

    python -m cael.experiments.propensities_only --out results/propensities_only.json --logs 30 --jobs 2

Every log is evaluated with the logging policy known in full, and with the logged propensities alone, from which the
rest is fitted. By world: the mean squared error of CAEL with the fitted policy over that with the known one, on the
same logs (where the fit is too poor for CAEL, the error is that of what Auto gives instead); how often the interval
that `evaluate` gives by default holds the truth, and the true lift; and the error of the fit.

A run that was stopped goes on where it was. Seeds below 7000 are for tuning; what is reported is run on others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np

import cael
from cael.errors import NeedsError
from cael.experiments.broken import rebuilt
from cael.experiments.ledger import append, in_parallel, read_lines
from cael.experiments.trust import baseline_of, listed, numbers, short, truth_of, world_of
from cael.worlds import suite


@final
@dataclass(frozen=True)
class Task:
    """A log of a world: its name, and the seed."""

    world: str
    seed: int


def evaluated(log: cael.LoggedData, policy: Any) -> cael.Evaluation:
    """The default evaluation with CAEL beside Auto; without it where the fit of the logging policy is too poor."""
    try:
        return cael.evaluate(log, policy, cael.CAEL())
    except NeedsError:
        return cael.evaluate(log, policy)


def cael_in(evaluation: cael.Evaluation) -> list[float | None] | None:
    """Value and interval of CAEL, where it is there."""
    return next((numbers(estimate) for estimate in evaluation if estimate.estimator == "CAEL"), None)


def row(task: Task) -> dict[str, Any]:
    """One log, with the logging policy known and with logged propensities alone."""
    world, n = world_of(task.world)
    log, start = world.sample(n, task.seed), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = evaluated(rebuilt(log), world.target)
        seconds = time.process_time() - start
        known = cael.CAEL().estimate(log, world.target)
    truth, baseline = truth_of(task.world), baseline_of(task.world, log)
    fits = [e.diagnostics.logging_fit for e in part if e.diagnostics.logging_fit is not None]
    return {
        **asdict(task), "n": n, "truth": short(truth), "true_lift": short(truth - baseline),
        "seconds": round(seconds, 2), "level": part.verdict.level, "best": numbers(part.best, part.interval),
        "lift": numbers(part.lift, part.lift_interval), "fitted": cael_in(part), "known": numbers(known),
        "sndr": numbers(part["SNDR"]), "error": short(fits[0].error) if fits else None,
    }  # fmt: skip


def holds(interval: Sequence[float], truth: float) -> bool:
    return bool(interval[1] <= truth <= interval[2])


def of_world(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the logs of a world say."""

    def squares(name: str, instead: str) -> float:
        return float(np.mean([((line[name] or line[instead])[0] - line["truth"]) ** 2 for line in lines]))

    errors = [line["error"] for line in lines if line["error"] is not None]
    return {
        "logs": len(lines),
        "mse_ratio": squares("fitted", "best") / squares("known", "best"),
        "left_out": sum(line["fitted"] is None for line in lines),
        "coverage": float(np.mean([holds(line["best"], line["truth"]) for line in lines])),
        "coverage_of_lift": float(np.mean([holds(line["lift"], line["true_lift"]) for line in lines])),
        "sndr_mse_ratio": squares("sndr", "sndr") / squares("known", "best"),
        "fit_error": median(errors) if errors else None,
        "levels": {level: sum(line["level"] == level for line in lines) for level in ("ok", "caution", "refuse")},
        "seconds": median(line["seconds"] for line in lines),
    }


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By world, and the two numbers that are asked for."""
    worlds = {name: of_world([line for line in lines if line["world"] == name]) for name in {x["world"] for x in lines}}
    return {
        "median_mse_ratio": median(facts["mse_ratio"] for facts in worlds.values()),
        "least_coverage": min(facts["coverage"] for facts in worlds.values()),
        "worlds": dict(sorted(worlds.items())),
    }


def run(out: Path, rows: Path, tasks: Sequence[Task], jobs: int) -> dict[str, Any]:
    """Run what is missing and write the summary of all that was asked for."""
    for path in (out, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
    done = {Task(line["world"], line["seed"]): line for line in read_lines(rows)}
    missing = [task for task in tasks if task not in done]
    for count, line in enumerate(in_parallel(row, [(task,) for task in missing], jobs), start=1):
        done[Task(line["world"], line["seed"])] = line
        append(rows, [line])
        print(f"{count} of {len(missing)}: {line['world']} {line['seed']}", file=sys.stderr, flush=True)
    facts = summary([done[task] for task in tasks])
    out.write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a .json file")
    parser.add_argument(
        "--rows", type=Path, default=Path("results/propensities_only.jsonl"), help="where logs are kept"
    )
    parser.add_argument("--only", nargs="*", default=(), help="names of worlds; those of the suite by default")
    parser.add_argument("--logs", type=int, default=30, help="of each world")
    parser.add_argument("--seeds", type=int, default=7000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in listed()]
    if unknown:
        parser.error(f"there is no world {unknown[0]!r}; there are: {', '.join(listed())}.")
    names = options.only or list(suite())
    tasks = [Task(name, options.seeds + t) for t in range(options.logs) for name in names]
    facts = run(options.out, options.rows, tasks, options.jobs)
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    from cael.experiments import propensities_only  # by its name, so that other processes find its functions

    propensities_only.main()
