"""What the logs of a trust run add up to: by world, by class of overlap, by condition, by check, and by target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from cael.common.types import Floats
from cael.experiments.broken import BREAKS
from cael.judging.survey import two_sided
from cael.judging.thresholds import DEFAULT

Row: TypeAlias = dict[str, Any]
Count: TypeAlias = list[int]
"""[how many, of how many]."""

POPULATION = "population"
"""The first word of the names of worlds that were drawn at random."""
SOUND, PROPENSITIES = tuple(BREAKS)[:2]
SHUFFLED = tuple(name for name in BREAKS if name.startswith("actions shuffled"))
HEADLINES = {"plain": "SNDR", "learned": "Auto"}
LOW = 20.0
"""Below this n / E w^2 an "ok" must be right."""
EVERY = (0.0, math.inf)
CLASSES = ((0.0, 10.0), (10.0, 100.0), (100.0, math.inf))
EFFECTLESS = ("actions do not matter", "rare clicks, equal arms")
"""Worlds in which no action is better than another."""
BEYOND_THE_LOG = ("deficient",)
"""Worlds whose weights do not average 1, as the logging policy leaves actions out."""
LEARNS = ("learning policy",)
"""Worlds whose logged rewards drift, as the logging policy changes."""
NOT_RIVALS = ("LoggedMean",)
UNLIKELY = 0.01
"""A count that is less likely than this under its target is beyond Monte Carlo error."""


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the pages show, in plain types."""
    logs = [row for row in rows if row["kind"] == "evaluate"]
    named, drawn = [row for row in logs if not is_drawn(row)], [row for row in logs if is_drawn(row)]
    extra = {
        (row["world"], row["seed"], row["estimator"]): row["estimate"] for row in rows if row["kind"] == "estimate"
    }
    facts: dict[str, Any] = {
        "sizes": sizes_of(named, drawn),
        "worlds": worlds_of(_learned(named), extra),
        "population": [class_of(_within(_learned(drawn), bounds), bounds) for bounds in (*CLASSES, EVERY)]
        if drawn
        else [],
        "verdicts": lines_of(named),
        "verdict_worlds": [verdicts_on(world, group) for world, group in by_world(named).items()],
        "low": low_of(_learned(logs)),
        "classes": [*classes_of("list", named), *classes_of(POPULATION, drawn)],
        "checks": checks_of(logs),
        "joint": joint_of([row for row in rows if row["kind"] == "joint"]),
    }
    return {**facts, "targets": targets_of(facts)}


def sizes_of(named: Sequence[Row], drawn: Sequence[Row]) -> dict[str, Any]:
    """How many logs there are of each kind, and the seeds of those of the list."""
    seeds = [row["seed"] for row in named]
    return {
        "worlds": len(by_world(named)), "sound": len(_learned(named)),
        "learned": sum(bool(row["learned"]) for row in named),
        "all": len(named), "seeds": [min(seeds), max(seeds)] if seeds else None,
        "population": len(by_world(drawn)), "population_logs": len(drawn),
    }  # fmt: skip


def _learned(rows: Iterable[Row]) -> list[Row]:
    """Sound logs with both evaluations."""
    return [
        row
        for row in rows
        if row["condition"] == SOUND and row["learned"] and "best" in row["learned"] and "best" in row["plain"]
    ]


def _within(rows: Iterable[Row], bounds: Sequence[float]) -> list[Row]:
    """Those of a class of overlap; logs whose target plays what the logging policy never does are in none."""
    return [row for row in rows if row["overlap"] > 0 and bounds[0] <= row["overlap"] < bounds[1]]


def by_world(rows: Iterable[Row], *, merged: bool = False) -> dict[str, list[Row]]:
    """The logs of each world. merged: the population is one world."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(POPULATION if merged and is_drawn(row) else row["world"], []).append(row)
    return groups


def is_drawn(row: Row) -> bool:
    """Whether a log is of the population."""
    return bool(row["world"].startswith(f"{POPULATION} "))


# Numbers of some logs


def holds_truth(triple: Sequence[float], truth: float) -> bool:
    """Whether an interval, after its value, holds the truth, to the seven digits that are kept."""
    slack = 1e-6 * max(abs(truth), abs(triple[2] - triple[1]))
    return triple[1] - slack <= truth <= triple[2] + slack


def count(values: Iterable[bool]) -> Count:
    listed = list(values)
    return [sum(map(bool, listed)), len(listed)]


def mean_and_error(values: Floats) -> list[float]:
    """The mean and its Monte Carlo standard error; of one value, its size."""
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else abs(values[0])
    return [float(values.mean()), float(error)]


def ratio_of(top: Floats, bottom: Floats) -> list[float]:
    """The ratio of two paired means, and its Monte Carlo standard error by the delta method; 1 ± 1 over 0."""
    if bottom.mean() == 0:
        return [1.0, 1.0]
    ratio = top.mean() / bottom.mean()
    return [float(ratio), mean_and_error(top - ratio * bottom)[1] / float(bottom.mean())]


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan


def unlikely(counted: Sequence[int], share: float, *, more: bool) -> bool:
    """Whether so many (more), or so few, of so many are beyond Monte Carlo error. share: the target."""
    from scipy.special import bdtr, bdtrc

    hits, trials = counted
    if trials == 0:
        return False
    tail = (bdtrc(hits - 1, trials, share) if hits else 1.0) if more else bdtr(hits, trials, share)
    return bool(tail < UNLIKELY)


def width(triple: Sequence[float]) -> float:
    return triple[2] - triple[1]


def excludes_0(triple: Sequence[float]) -> bool:
    return triple[1] > 0 or triple[2] < 0


def widths(rows: Sequence[Row], kind: str) -> Floats:
    return np.array([width(row[kind]["best"]) for row in rows])


def errors(rows: Sequence[Row], kind: str) -> Floats:
    return np.array([row[kind]["best"][0] - row["truth"] for row in rows])


def stretch(rows: Sequence[Row], kind: str, scale: Floats | float = 1.0) -> float:
    """Mean width over 3.92 times the root mean squared error. scale: what both are divided by first, row by row."""
    rmse = float(np.sqrt(np.mean((errors(rows, kind) / scale) ** 2)))
    return float((widths(rows, kind) / scale).mean() / (3.92 * rmse)) if rmse else math.nan


def decisions(rows: Sequence[Row]) -> dict[str, Any]:
    """Coverage, power and the direction of lifts, for both headlines; paired: the two losses of power."""
    facts: dict[str, Any] = {}
    for kind, name in HEADLINES.items():
        facts[name] = {
            "covers": count(holds_truth(row[kind]["best"], row["truth"]) for row in rows),
            "lift_covers": count(holds_truth(row[kind]["lift"], row["true_lift"]) for row in rows),
            "power": count(excludes_0(row[kind]["lift"]) for row in rows),
        }
    shown = [[excludes_0(row[kind]["lift"]) for kind in HEADLINES] for row in rows]
    facts["lost"] = sum(plain and not learned for plain, learned in shown)
    facts["won"] = sum(learned and not plain for plain, learned in shown)
    return facts


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
        if (group := [row for row in _within(sound, bounds) if row[kind]])
    ]


def low_of(rows: Sequence[Row]) -> Count:
    """Of the sound logs with little overlap and verdict "ok" from Auto, those whose interval holds the truth."""
    accepted = [row for row in _within(rows, (0.0, LOW)) if row["learned"]["level"] == "ok"]
    return count(holds_truth(row["learned"]["best"], row["truth"]) for row in accepted)


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


# Targets


def targets_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Issue 16's targets: what each is, what was found, and whether it holds (null: not measured)."""
    lines = [
        *(_errors_hold(facts["worlds"]) if facts["worlds"] else []),
        *(_intervals_hold(facts["worlds"]) if facts["worlds"] else []),
        *_decisions_hold(facts), *_verdicts_hold(facts), *_joint_hold(facts["joint"]), *_checks_hold(facts["checks"]),
        *_time_holds(facts["worlds"]),
    ]  # fmt: skip
    return [{"target": target, "finding": finding, "holds": holds} for target, finding, holds in lines]


Target: TypeAlias = tuple[str, str, bool | None]


def _names(worlds: Sequence[str]) -> str:
    return ", ".join(worlds) or "none"


def _plus(pair: Sequence[float], digits: int = 2) -> str:
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


def percent(hits: int, trials: int) -> str:
    return (
        f"{hits / trials:.1%} ± {math.sqrt(hits / trials * (1 - hits / trials) / trials):.1%}" if trials else "no log"
    )


def _errors_hold(worlds: Sequence[dict[str, Any]]) -> Iterable[Target]:
    worst = max(worlds, key=lambda line: line["ratio"][0])
    beyond = [line["world"] for line in worlds if line["ratio"][0] - 2 * line["ratio"][1] > 1.2]
    above = sum(line["ratio"][0] > 1.2 for line in worlds)
    yield (
        "1. MSE of Auto at most 1.2 times the better of SNIPS and SNDR in every world, within Monte Carlo error",
        f"worst {_plus(worst['ratio'])} ({worst['world']}); above 1.2 in {above} of {len(worlds)} worlds, beyond 2 "
        f"Monte Carlo errors in: {_names(beyond)}",
        not beyond,
    )
    regret = geometric([line["regret"][0] for line in worlds])
    yield "1. geometric-mean regret against the best of all at most 1.25", f"{regret:.2f}", regret <= 1.25
    for line in worlds:
        if line["world"] == "paper":
            mse = line["mse"]["Auto"]
            yield "1. MSE on the paper's default problem at most 0.005", f"{mse[0]:.4f} ± {mse[1]:.4f}", mse[0] <= 0.005


def _intervals_hold(worlds: Sequence[dict[str, Any]]) -> Iterable[Target]:
    least = min(worlds, key=lambda line: line["Auto"]["covers"][0] / line["Auto"]["covers"][1])
    below = [line["world"] for line in worlds if unlikely(line["Auto"]["covers"], 0.93, more=False)]
    yield (
        "2. the 95% interval of Auto covers at least 93% in every world, within Monte Carlo error",
        f"least {percent(*least['Auto']['covers'])} ({least['world']}); below 93% beyond Monte Carlo error in: "
        f"{_names(below)}",
        not below,
    )
    stretched = {who: geometric([line["stretch"][who] for line in worlds]) for who in HEADLINES.values()}
    yield (
        "2. width at most 1.4 times 3.92 RMSE in the geometric mean",
        f"{stretched['Auto']:.2f} (SNDR {stretched['SNDR']:.2f})",
        stretched["Auto"] <= 1.4,
    )
    for line in worlds:
        if line["n"] >= 100_000:
            yield (
                "2. with 100,000 rows of an A/B test Auto's width is within 3% of SNDR's",
                f"{line['width']:.3f} times SNDR's",
                abs(line["width"] - 1) <= 0.03,
            )


def _decisions_hold(facts: dict[str, Any]) -> Iterable[Target]:
    good = [line for line in facts["worlds"] if line["overlap"] >= 100]
    good += [line for line in facts["population"] if line["class"][0] >= 100 and line["logs"]]
    logs = sum(line["logs"] for line in good)
    if logs:
        won = _sum(good, "won")
        auto, sndr = (sum(line[who]["power"][0] for line in good) for who in ("Auto", "SNDR"))
        fewer = [line.get("world", "population") for line in good
                 if unlikely([line["won"], line["won"] + line["lost"]], 0.5, more=False)]  # fmt: skip
        yield (
            "3. where n / E w² is at least 100, Auto's lift excludes 0 as often as SNDR's",
            f"Auto {percent(auto, logs)}, SNDR {percent(sndr, logs)}; less often beyond chance in: {_names(fewer)}",
            not fewer and not unlikely([won, won + _sum(good, "lost")], 0.5, more=False),
        )
    if facts["worlds"] or facts["population"]:
        covers, accepted = facts["low"]
        yield (
            f"3. where n / E w² is below {LOW:g} and the answer is ok, the interval covers",
            f"{covers} of {accepted} logs with ok",
            not unlikely(facts["low"], 0.95, more=False),
        )


def _sum(lines: Sequence[dict[str, Any]], name: str) -> int:
    return sum(line[name] for line in lines)


def _verdicts_hold(facts: dict[str, Any]) -> Iterable[Target]:
    lines = {line["condition"]: line for line in facts["verdicts"] if line["headline"] == "Auto"}
    by_line = {name: [line["false_ok"], line["logs"]] for name, line in lines.items()}
    kinds = [
        (line["world"], kind, line["Auto"][kind]) for line in facts["verdict_worlds"] for kind in ("sound", "broken")
    ]
    of_worlds = {f"{world}, {kind}": [counts["false_ok"], counts["logs"]] for world, kind, counts in kinds}
    yield from _false_ok("in every line", by_line)
    yield from _false_ok("of every world, sound or broken", of_worlds)
    sound = [line for line in facts["classes"] if line["headline"] == "Auto"]
    good = [line for line in sound if line["class"][0] >= 100]
    poor = [line for line in sound if line["class"][0] < 100]
    logs, ok, refused = (_sum(good, name) for name in ("logs", "ok", "refuse"))
    if logs:
        yield "4. sound, n / E w² at least 100: ok in at least 85%", percent(ok, logs), ok / logs >= 0.85
        yield "4. sound, n / E w² at least 100: refuse in at most 1%", percent(refused, logs), refused / logs <= 0.01
    refused, covers = _sum(poor, "covers_refused"), _sum(poor, "covers")
    if covers:
        target = "4. sound, poor overlap (below 100), interval covers: at most a fifth refused"
        yield target, percent(refused, covers), refused / covers <= 0.2


def _false_ok(where: str, counts: dict[str, Count]) -> Iterable[Target]:
    known = {name: pair for name, pair in counts.items() if pair[1]}
    if known:
        worst = max(known, key=lambda name: known[name][0] / known[name][1])
        beyond = [name for name, pair in known.items() if unlikely(pair, 0.05, more=True)]
        yield (
            f"4. false ok in at most 5% of the logs {where}",
            f"worst {percent(*known[worst])} ({worst}); beyond Monte Carlo error in: {_names(beyond)}",
            not beyond,
        )


def _joint_hold(lines: Sequence[dict[str, Any]]) -> Iterable[Target]:
    for line in lines:
        yield (
            f"5. ten equal arms, {line['rate']:.1%} successes, {line['command']} with {line['headline']}: false "
            "directions in at most 5% of the logs",
            percent(*line["false"]),
            not unlikely(line["false"], 0.05, more=True),
        )


def _checks_hold(lines: Sequence[dict[str, Any]]) -> Iterable[Target]:
    if lines:
        beyond = [
            f"{line['check']} with {line['headline']} ({_names(line['beyond'])})" for line in lines if line["beyond"]
        ]
        yield (
            "6. type I error of every check within 1.5 times its level where its null is true",
            f"beyond it by more than chance: {'; '.join(beyond) or 'none'}",
            not beyond,
        )


def _time_holds(worlds: Sequence[dict[str, Any]]) -> Iterable[Target]:
    lines = [line for line in worlds if line["overlap"] >= 1000]
    if lines:
        slow = max(lines, key=lambda line: line["time"][1] / line["time"][0])
        ratio = slow["time"][1] / slow["time"][0]
        total = sum(line["time"][1] for line in lines) / sum(line["time"][0] for line in lines)
        yield (
            "7. where n / E w² is at least 1,000, evaluate with learning takes at most 3 times as long",
            f"worst {ratio:.1f} times ({slow['world']}), {total:.1f} times over all such worlds",
            ratio <= 3,
        )
        worse = [line["world"] for line in lines if line["ratio"][0] - 2 * line["ratio"][1] > 1]
        yield (
            "7. and is no less accurate",
            f"MSE {geometric([line['ratio'][0] for line in lines]):.2f} times the better of SNIPS and SNDR in the "
            f"geometric mean; larger beyond Monte Carlo error in: {_names(worse)}",
            not worse,
        )
