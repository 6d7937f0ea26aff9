"""What the logs of a trust run add up to: by world, by class of overlap, by condition and by check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cael.common.types import Floats
from cael.experiments.broken import BREAKS
from cael.experiments.trust_counts import (
    BEYOND_THE_LOG,
    CLASSES,
    EFFECTLESS,
    EVERY,
    HEADLINES,
    LEARNS,
    LOW,
    NOT_RIVALS,
    POPULATION,
    PROPENSITIES,
    SHUFFLED,
    SOUND,
    Count,
    Row,
    both_of,
    by_world,
    count,
    decisions,
    errors,
    holds_truth,
    is_drawn,
    mean_and_error,
    ratio_of,
    stretch,
    unlikely,
    width,
    widths,
    within,
)
from cael.experiments.trust_targets import targets_of
from cael.judging.survey import two_sided
from cael.judging.thresholds import DEFAULT

ROUNDED = 1e-4
"""Widths that differ by less are the same: of seven digits of a value, its interval may keep four."""


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the pages show, in plain types."""
    logs = [row for row in rows if row["kind"] == "evaluate"]
    named, drawn = [row for row in logs if not is_drawn(row)], [row for row in logs if is_drawn(row)]
    extra = {
        (row["world"], row["seed"], row["estimator"]): row["estimate"] for row in rows if row["kind"] == "estimate"
    }
    facts: dict[str, Any] = {
        "sizes": {**sizes_of(named, drawn), "versions": versions_of(rows)},
        "worlds": worlds_of(both_of(named), extra),
        "population": [class_of(within(both_of(drawn), bounds), bounds) for bounds in (*CLASSES, EVERY)]
        if drawn
        else [],
        "verdicts": lines_of(named),
        "verdict_worlds": [verdicts_on(world, group) for world, group in by_world(named).items()],
        "low": low_of(both_of(logs)),
        "wider": wider_of(both_of(logs)),
        "classes": [*classes_of("list", named), *classes_of(POPULATION, drawn)],
        "checks": checks_of(logs),
        "joint": joint_of([row for row in rows if row["kind"] == "joint"]),
    }
    return {**facts, "targets": targets_of(facts)}


def sizes_of(named: Sequence[Row], drawn: Sequence[Row]) -> dict[str, Any]:
    """How many logs there are of each kind, and the seeds of those of the list."""
    seeds = [row["seed"] for row in named]
    return {
        "worlds": len(by_world(named)), "sound": len(both_of(named)),
        "learned": sum(bool(row["learned"]) for row in named),
        "all": len(named), "seeds": [min(seeds), max(seeds)] if seeds else None,
        "population": len(by_world(drawn)), "population_logs": len(drawn),
    }  # fmt: skip


def versions_of(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows each version of the source made."""
    return dict(Counter(row.get("version", "") for row in rows).most_common())


# By world


def worlds_of(rows: Sequence[Row], extra: dict[tuple[str, int, str], Any]) -> list[dict[str, Any]]:
    return [world_line(name, group, extra) for name, group in by_world(rows).items()]


def world_line(name: str, rows: Sequence[Row], extra: dict[tuple[str, int, str], Any]) -> dict[str, Any]:
    """Errors of every estimator that has a number on all these logs; intervals, power, verdicts and time of two."""
    truth = np.array([row["truth"] for row in rows])
    squares = {
        who: (np.array([triple[0] for triple in triples]) - truth) ** 2
        for who, triples in estimates_of(name, rows, extra).items()
    }
    mse = {who: mean_and_error(square) for who, square in squares.items()}
    rivals = [who for who in mse if who not in NOT_RIVALS]
    simple = min((who for who in ("SNIPS", "SNDR") if who in mse), key=lambda who: mse[who][0])
    best = min(rivals, key=lambda who: mse[who][0])
    return {
        "world": name, "n": rows[0]["n"], "k": rows[0]["k"], "logs": len(rows),
        "overlap": float(np.median([row["overlap"] for row in rows])), "mse": mse,
        "simple": simple, "ratio": ratio_of(squares["Auto"], squares[simple]), "best": best,
        "regret": ratio_of(squares["Auto"], squares[best]), **decisions(rows),
        "stretch": {who: stretch(rows, kind) for kind, who in HEADLINES.items()},
        "width": float(widths(rows, "learned").mean() / widths(rows, "plain").mean()),
        "time": [float(np.median([row[kind]["seconds"] for row in rows])) for kind in HEADLINES],
    }  # fmt: skip


def estimates_of(
    name: str, rows: Sequence[Row], extra: dict[tuple[str, int, str], Any]
) -> dict[str, list[Sequence[float]]]:
    """Estimator -> its number and interval on each of the logs, for those that have one on all."""
    triples = {who: [row["learned"]["estimates"].get(who) for row in rows] for who in rows[0]["learned"]["estimates"]}
    for who in {who for world, _, who in extra if world == name}:
        triples[who] = [extra.get((name, row["seed"], who)) for row in rows]
    return {who: known for who, known in triples.items() if all(triple is not None for triple in known)}


# By class of overlap


def class_of(rows: Sequence[Row], bounds: Sequence[float]) -> dict[str, Any]:
    """A class of the population: errors and widths in standard deviations of the logged reward."""
    facts = {"class": _bounds(bounds), "logs": len(rows)}
    if not rows:
        return facts
    scale = np.array([row["spread"] for row in rows])
    squares = {kind: (errors(rows, kind) / scale) ** 2 for kind in HEADLINES}
    snips = np.array([row["learned"]["estimates"]["SNIPS"][0] - row["truth"] for row in rows]) / scale
    return {
        **facts, **decisions(rows),
        "rmse": {**{who: _root(squares[kind]) for kind, who in HEADLINES.items()}, "SNIPS": _root(snips**2)},
        "ratio": ratio_of(squares["learned"], min((squares["plain"], snips**2), key=lambda square: square.mean())),
        "stretch": {who: stretch(rows, kind, scale) for kind, who in HEADLINES.items()},
        "width": float(np.median(widths(rows, "learned") / np.maximum(widths(rows, "plain"), 1e-300))),
    }  # fmt: skip


def _root(squares: Floats) -> list[float]:
    """The root of a mean and its Monte Carlo standard error."""
    mean, error = mean_and_error(squares)
    return [math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean else 0.0]


def _bounds(bounds: Sequence[float]) -> list[float | None]:
    return [bounds[0], bounds[1] if math.isfinite(bounds[1]) else None]


# Verdicts


def verdict_counts(rows: Sequence[Row], kind: str) -> dict[str, int]:
    """Verdicts of some logs, the intervals that miss, and both together; "errors" are refusals."""
    levels = [row[kind]["level"] for row in rows]
    missed = ["best" in row[kind] and not holds_truth(row[kind]["best"], row["truth"]) for row in rows]
    refused = [level in ("refuse", "errors") for level in levels]
    false_ok = [level == "ok" and miss for level, miss in zip(levels, missed, strict=True)]
    return {
        "logs": len(rows), "ok": levels.count("ok"), "caution": levels.count("caution"), "refuse": sum(refused),
        "missed": sum(missed), "false_ok": sum(false_ok), "covers": len(rows) - sum(missed),
        "covers_refused": sum(no and not miss for no, miss in zip(refused, missed, strict=True)),
    }  # fmt: skip


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each condition and headline."""
    return [
        {"condition": condition, "headline": who, **verdict_counts(group, kind)}
        for condition in BREAKS
        for kind, who in HEADLINES.items()
        if (group := [row for row in rows if row["condition"] == condition and row[kind]])
    ]


def verdicts_on(world: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The counts of a world's sound logs and of its broken ones, by headline."""
    sound = [row for row in rows if row["condition"] in (SOUND, PROPENSITIES)]
    others = [row for row in rows if row["condition"] not in (SOUND, PROPENSITIES)]
    counts = {
        who: {
            name: verdict_counts([row for row in group if row[kind]], kind)
            for name, group in (("sound", sound), ("broken", others))
        }
        for kind, who in HEADLINES.items()
    }
    return {"world": world, **counts}


def classes_of(which: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each class of overlap and headline, of sound logs."""
    sound = [row for row in rows if row["condition"] in (SOUND, PROPENSITIES)]
    return [
        {"worlds": which, "class": _bounds(bounds), "headline": who, **verdict_counts(group, kind)}
        for bounds in CLASSES
        for kind, who in HEADLINES.items()
        if (group := [row for row in within(sound, bounds) if row[kind]])
    ]


def low_of(rows: Sequence[Row]) -> Count:
    """Of the sound logs with little overlap and verdict "ok" from Auto, those whose interval holds the truth."""
    accepted = [row for row in within(rows, (0.0, LOW)) if row["learned"]["level"] == "ok"]
    return count(holds_truth(row["learned"]["best"], row["truth"]) for row in accepted)


def wider_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the sound logs without a hole in the overlap, those in which the interval of Auto is wider than the wider of
    SNIPS's and SNDR's, beyond the digits that are kept; and the greatest ratio of the two."""
    ratios = [width(row["learned"]["best"]) / most for row in within(rows, EVERY) if (most := widest_simple(row)) > 0]
    return {"wider": count(ratio > 1 + ROUNDED for ratio in ratios), "most": max(ratios, default=0.0)}


def widest_simple(row: Row) -> float:
    """The width of the wider interval of SNIPS and SNDR."""
    triples = (row["learned"]["estimates"].get(who) for who in ("SNIPS", "SNDR"))
    return max((width(triple) for triple in triples if triple), default=0.0)


# Checks


def _doubted(check: Sequence[Any]) -> bool:
    return check[0] in ("warn", "fail")


def _at_most(level: float) -> Callable[[Sequence[Any]], bool]:
    """Rejection by the p-value of a test, whatever the check makes of it."""
    return lambda check: check[1] is not None and check[1] <= level


def nulls() -> dict[str, tuple[float, Callable[[Row], bool], Callable[[Sequence[Any]], bool]]]:
    """Check -> nominal level, the logs on which its null is true, and what rejects it."""
    sound = (SOUND, PROPENSITIES)
    return {
        "mean_weight": (
            two_sided(DEFAULT.mean_weight_z[0]),
            lambda row: row["condition"] in sound and row["world"] not in BEYOND_THE_LOG, _doubted),
        "disagreement": (
            3 * two_sided(DEFAULT.disagreement[0]),
            lambda row: row["condition"] in sound and row["world"] not in BEYOND_THE_LOG, _doubted),
        "frequencies": (DEFAULT.p_value, lambda row: row["condition"] in sound, _doubted),
        "surprise": (DEFAULT.p_value, lambda row: row["condition"] == SOUND, _doubted),
        "drift": (
            DEFAULT.drift_p_value, lambda row: row["condition"] in sound and row["world"] not in LEARNS, _doubted),
        "action_effect": (
            DEFAULT.effect_p_value,
            lambda row: row["condition"] in SHUFFLED or (row["condition"] in sound and row["world"] in EFFECTLESS),
            _at_most(DEFAULT.effect_p_value)),
        "propensity_column": (
            DEFAULT.column_p_value, lambda row: row["condition"] == SHUFFLED[-1], _at_most(DEFAULT.column_p_value)),
    }  # fmt: skip


def checks_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each check with an error rate and each headline: how often it rejects where its null is true."""
    return [
        {"check": name, "headline": who, "nominal": level, **rejections(group, kind, name, rejects, level)}
        for name, (level, true, rejects) in nulls().items()
        for kind, who in HEADLINES.items()
        if (group := [row for row in rows if row[kind] and name in row[kind]["checks"] and true(row)])
    ]


def rejections(
    rows: Sequence[Row], kind: str, name: str, rejects: Callable[[Sequence[Any]], bool], level: float
) -> dict[str, Any]:
    """Of all logs, of the world with the most, and the worlds beyond 1.5 times the level by more than chance. The
    population counts as one world."""
    counts = {
        world: count(rejects(row[kind]["checks"][name]) for row in group)
        for world, group in by_world(rows, merged=True).items()
    }
    worst = max(counts, key=lambda world: counts[world][0] / counts[world][1])
    total = [sum(pair[at] for pair in counts.values()) for at in (0, 1)]
    beyond = [world for world, pair in counts.items() if unlikely(pair, 1.5 * level, more=True)]
    return {"rejected": total, "worst": worst, "worst_rejected": counts[worst], "beyond": beyond}


# Ten equal arms


def joint_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Logs with a false direction, and with one whose verdict is "ok", by command, success rate and headline."""
    keys = list(dict.fromkeys((row["condition"], row["world"], row["learn"]) for row in rows))
    lines = []
    for what, rate, learn in keys:
        group = [row for row in rows if (row["condition"], row["world"], row["learn"]) == (what, rate, learn)]
        ok = None if what == "segments" else count(row["false_ok"] > 0 for row in group)
        lines.append({
            "command": what, "rate": float(rate), "headline": HEADLINES["learned" if learn else "plain"],
            "false": count(row["false"] > 0 for row in group), "false_ok": ok,
        })  # fmt: skip
    return lines
