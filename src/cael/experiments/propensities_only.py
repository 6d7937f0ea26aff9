"""What CAEL loses where a log has the propensity of the logged action alone, in the worlds of the suite.

    python -m cael.experiments.propensities_only --out docs/results/propensities_only.json --logs 30 --jobs 2

Every log is evaluated with the logging policy known in full, and with the logged propensities alone, from which the
rest is fitted. By world: the mean squared error of CAEL with the fitted policy over that with the known one, on the
same logs (where the fit is too poor for CAEL, the error is that of what Auto gives instead); how often the interval
that `evaluate` gives by default holds the truth, and the true lift; and the error of the fit.

A run that was stopped goes on where it was; --seconds stops it in time. Seeds below 7000 are for tuning; what is
reported is run on others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

import cael
from cael.errors import NeedsError
from cael.experiments.broken import rebuilt
from cael.experiments.markdown import table
from cael.experiments.resumed import Lines, LogTask, asked_tasks, parser_of, run_logs, told, write
from cael.experiments.trust import baseline_of, listed, numbers, short, truth_of, world_of
from cael.experiments.trust_page import share
from cael.worlds import suite

RATIO, COVERS = 1.5, 0.93
"""What is asked for: the ratio of squared errors in the median world, and the coverage in each."""


def evaluated(log: cael.LoggedData, policy: Any) -> cael.Evaluation:
    """The default evaluation with CAEL beside Auto; without it where the fit of the logging policy is too poor."""
    try:
        return cael.evaluate(log, policy, cael.CAEL())
    except NeedsError:
        return cael.evaluate(log, policy)


def cael_in(evaluation: cael.Evaluation) -> list[float | None] | None:
    """Value and interval of CAEL, where it is there."""
    return next((numbers(estimate) for estimate in evaluation if estimate.estimator == "CAEL"), None)


def row(task: LogTask) -> dict[str, Any]:
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


def ratio_of(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of two means over the same logs, with its standard error (by leaving out one log at a time)."""
    a, b, n = np.asarray(above), np.asarray(below), len(above)
    without = (a.sum() - a) / (b.sum() - b) if n > 1 else np.zeros(1)
    return [float(a.sum() / b.sum()), float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))]


def of_world(lines: Lines) -> dict[str, Any]:
    """What the logs of a world say."""

    def squares(name: str, instead: str) -> list[float]:
        return [((line[name] or line[instead])[0] - line["truth"]) ** 2 for line in lines]

    errors = [line["error"] for line in lines if line["error"] is not None]
    return {
        "logs": len(lines),
        "mse_ratio": ratio_of(squares("fitted", "best"), squares("known", "best")),
        "left_out": sum(line["fitted"] is None for line in lines),
        "covers": sum(holds(line["best"], line["truth"]) for line in lines),
        "lift_covers": sum(holds(line["lift"], line["true_lift"]) for line in lines),
        "sndr_mse_ratio": ratio_of(squares("sndr", "sndr"), squares("known", "best")),
        "fit_error": median(errors) if errors else None,
        "levels": {level: sum(line["level"] == level for line in lines) for level in ("ok", "caution", "refuse")},
        "seconds": median(line["seconds"] for line in lines),
    }


def summary(lines: Lines) -> dict[str, Any]:
    """By world, and the two numbers that are asked for."""
    worlds = {name: of_world([line for line in lines if line["world"] == name]) for name in {x["world"] for x in lines}}
    return {
        "median_mse_ratio": median(facts["mse_ratio"][0] for facts in worlds.values()),
        "least_coverage": min(facts["covers"] / facts["logs"] for facts in worlds.values()),
        "worlds": dict(sorted(worlds.items())),
    }


COMMAND = "python -m cael.experiments.propensities_only --out docs/results/propensities_only.json"
NONE = f"Not measured yet; `{COMMAND}` does it.\n"


def page(facts: dict[str, Any]) -> str:
    """The table of the documentation, and a sentence on what is asked for."""
    heads = ["world", "logs", "MSE, fitted over known", "SNDR's", "covers, %", "lift covers, %", "error of the fit, %",
             "without CAEL", "ok / caution / refuse"]  # fmt: skip
    rows = [
        [
            name, f"{of['logs']}",
            *(f"{pair[0]:.3g} ± {pair[1]:.1g}" for pair in (of["mse_ratio"], of["sndr_mse_ratio"])),
            share(of["covers"], of["logs"]), share(of["lift_covers"], of["logs"]),
            "" if of["fit_error"] is None else f"{100 * of['fit_error']:.2g}", f"{of['left_out']}",
            " / ".join(f"{of['levels'][level]}" for level in ("ok", "caution", "refuse")),
        ]
        for name, of in facts["worlds"].items()
    ]  # fmt: skip
    ratio, least = facts["median_mse_ratio"], facts["least_coverage"]
    asked = (
        f"Median ratio {ratio:.2f} (asked: at most {RATIO}, {_word(holds=ratio <= RATIO)}); least coverage "
        f"{100 * least:.1f}% (asked: at least {100 * COVERS:.0f}%, {_word(holds=least >= COVERS)})."
    )
    return f"{table(heads, rows)}\n{asked}\n"


def _word(*, holds: bool) -> str:
    return "holds" if holds else "**does not hold**"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser_of(__doc__, "results/propensities_only.jsonl").parse_args(arguments)
    tasks = asked_tasks(options, list(listed()), list(suite()))
    lines = run_logs(row, tasks, options.rows, options.jobs, options.seconds)
    if lines:
        facts = summary(lines)
        write(options.out, facts, page(facts))
        print(page(facts))
    told(lines, tasks)


if __name__ == "__main__":
    from cael.experiments import propensities_only  # by its name, so that other processes find its functions

    propensities_only.main()
