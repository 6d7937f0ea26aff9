"""What logs without any propensities give: verdicts, coverage, and what the sensitivity analysis is worth.

    python -m cael.experiments.without_propensities --out docs/results/without_propensities.json --logs 50 --jobs 2

Each log is drawn with its propensities, which are then taken off; the logging policy is estimated from contexts and
actions, and the default evaluation asked. In the first worlds the logging policy looks at nothing but the contexts; in
"rewards" at those expected rewards themselves that the reward model does not hold either; in the "hidden" ones at
something that the contexts do not hold, which moves propensities by up to the factor in the name. By world: the family
that was chosen, how far the estimated policy is off (total variation), verdicts, how often the interval holds the
truth, its width over that with known propensities, and how often the interval with the sensitivity bound at that
factor (1.3 where there is none) holds it.

A run that was stopped goes on where it was; --seconds stops it in time. Seeds below 7000 are for tuning; what is
reported is run on others.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from statistics import median
from typing import Any

import numpy as np

import cael
from cael.experiments.markdown import table
from cael.experiments.resumed import Lines, LogTask, asked_tasks, parser_of, run_logs, told, write
from cael.experiments.trust import numbers, short
from cael.experiments.trust_page import share
from cael.experiments.untold import HIDDEN, WORLDS, bare

COVERS, USUAL = 0.9, 1.3
"""The coverage that is asked for where contexts hold everything; the factor that is looked at where none is known."""
ALL = {**WORLDS, **HIDDEN}


@cache
def truths(name: str) -> tuple[float, float]:
    """The value of the target, and its lift over the logging policy."""
    world, _ = ALL[name]
    value = world.value(world.target)
    return value, value - world.logged_value()


def row(task: LogTask) -> dict[str, Any]:
    """One log, without its propensities; and SNDR with them."""
    world, n = ALL[task.world]
    sound = world.sample(n, task.seed)
    log, start = bare(sound), time.process_time()
    fitted = cael.estimate_logging(log)
    estimated = cael.LoggedData(
        log.contexts, log.actions, log.rewards, logging=fitted, n_actions=log.n_actions, eligible=log.eligible
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluation = cael.evaluate(estimated, world.target)
        seconds, known = time.process_time() - start, cael.SNDR().estimate(sound, world.target)
    value, lift = truths(task.world)
    bound, factor = evaluation.sensitivity, world.factor if world.factor > 1 else USUAL
    assert bound is not None
    assert sound.logging is not None
    return {
        **asdict(task), "n": n, "k": world.n_actions, "truth": short(value), "true_lift": short(lift),
        "family": fitted.family, "off": short(apart(fitted, sound.logging, estimated)), "seconds": round(seconds, 2),
        "level": evaluation.verdict.level, "refused": [c.name for c in evaluation.verdict.checks if c.status == "fail"],
        "best": numbers(evaluation.best, evaluation.interval),
        "lift": numbers(evaluation.lift, evaluation.lift_interval),
        "known": numbers(known), "snips": numbers(evaluation["SNIPS"]), "factor": factor,
        "bound": [short(end) for end in bound.value_at(factor)], "sign": short(bound.factor),
    }  # fmt: skip


def apart(one: cael.Policy, other: cael.Policy, log: cael.LoggedData) -> float:
    """The mean total variation distance of two policies on a log."""
    distances = [
        np.abs(one.probabilities(b) - other.probabilities(b)).sum(axis=1) / 2 for b in log.batches(log.n_actions)
    ]
    return float(np.concatenate(distances).mean())


def within(ends: Sequence[float], truth: float) -> bool:
    """Whether the last two of these hold it."""
    return bool(ends[-2] <= truth <= ends[-1])


def of_world(lines: Lines) -> dict[str, Any]:
    """What the logs of a world say."""

    def covers(name: str, truth: str = "truth") -> int:
        return sum(within(line[name], line[truth]) for line in lines)

    def width(name: str) -> float:
        return float(np.mean([line[name][-1] - line[name][-2] for line in lines]))

    return {
        "logs": len(lines), "n": lines[0]["n"], "k": lines[0]["k"], "factor": lines[0]["factor"],
        "families": dict(Counter(line["family"] for line in lines).most_common()),
        "off": median(line["off"] for line in lines),
        "levels": {level: sum(line["level"] == level for line in lines) for level in ("ok", "caution", "refuse")},
        "refused": dict(Counter(name for line in lines for name in line["refused"]).most_common()),
        "covers": covers("best"), "lift_covers": covers("lift", "true_lift"), "snips_covers": covers("snips"),
        "known_covers": covers("known"), "bound_covers": covers("bound"), "width": width("best") / width("known"),
        "bound_width": width("bound") / width("best"), "seconds": median(line["seconds"] for line in lines),
    }  # fmt: skip


def summary(lines: Lines) -> dict[str, Any]:
    """By world, in their order."""
    by_name = {name: [line for line in lines if line["world"] == name] for name in ALL}
    return {"worlds": {name: of_world(some) for name, some in by_name.items() if some}}


COMMAND = "python -m cael.experiments.without_propensities --out docs/results/without_propensities.json"
NONE = f"Not measured yet; `{COMMAND}` does it.\n"


def page(facts: dict[str, Any]) -> str:
    """The table of the documentation, and what is asked for."""
    heads = ["world", "rows", "logs", "chosen", "off, %", "ok / caution / refuse", "covers, %", "lift covers, %",
             "SNIPS covers, %", "with propensities, %", "width over that", "with the bound, %", "at a factor of",
             "width over the interval"]  # fmt: skip
    rows = [_line(name, of) for name, of in facts["worlds"].items()]
    return f"{table(heads, rows)}\n{_asked(facts)}\n"


def _line(name: str, of: dict[str, Any]) -> list[str]:
    n = of["logs"]
    covers = (share(of[key], n) for key in ("covers", "lift_covers", "snips_covers", "known_covers"))
    return [
        name, f"{of['n']:,}", f"{n}", next(iter(of["families"])), f"{100 * of['off']:.0f}",
        " / ".join(f"{of['levels'][level]}" for level in ("ok", "caution", "refuse")), *covers, f"{of['width']:.2f}",
        share(of["bound_covers"], n), f"{of['factor']:g}", f"{of['bound_width']:.1f}",
    ]  # fmt: skip


def _asked(facts: dict[str, Any]) -> str:
    plain = {name: of for name, of in facts["worlds"].items() if name in WORLDS}
    hidden = {name: of for name, of in facts["worlds"].items() if name in HIDDEN}
    refused = sum(of["levels"]["refuse"] for of in facts["worlds"].values())
    shares = {name: of["covers"] / of["logs"] for name, of in plain.items()}
    worst = min(shares, key=lambda name: shares[name], default="")
    least = shares.get(worst, 1.0)
    bound = min((of["bound_covers"] / of["logs"] for of in hidden.values()), default=1.0)
    word = {True: "holds", False: "**does not hold**"}
    return (
        f"Where contexts hold everything: least coverage {100 * least:.0f}%, in {worst} (asked: at least "
        f"{100 * COVERS:.0f}%, {word[least >= COVERS]}). Where something is hidden: least coverage with the "
        f"bound {100 * bound:.0f}% (asked: at least 95%, {word[bound >= 0.95]}). Refusals, which are not "
        f"wanted: {refused} ({word[refused == 0]})."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser_of(__doc__, "results/without_propensities.jsonl").parse_args(arguments)
    tasks = asked_tasks(options, list(ALL), list(ALL))
    lines = run_logs(row, tasks, options.rows, options.jobs, options.seconds)
    if lines:
        facts = summary(lines)
        write(options.out, facts, page(facts))
        print(page(facts))
    told(lines, tasks)


if __name__ == "__main__":
    from cael.experiments import without_propensities  # by its name, so that other processes find its functions

    without_propensities.main()
