"""What a trust run says about each target of its issue: what was found, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from cael.experiments.trust_counts import HEADLINES, LOW, Count, geometric, unlikely


def targets_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Issue 16's targets: what each is, what was found, and whether it holds (null: not measured)."""
    lines = [
        *(_errors_hold(facts["worlds"]) if facts["worlds"] else []),
        *(_intervals_hold(facts["worlds"]) if facts["worlds"] else []),
        *_widths_hold(facts["wider"]), *_decisions_hold(facts), *_verdicts_hold(facts), *_joint_hold(facts["joint"]),
        *_checks_hold(facts["checks"]), *_time_holds(facts["worlds"]),
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


def _widths_hold(wider: dict[str, Any]) -> Iterable[Target]:
    found, logs = wider["wider"]
    if logs:
        yield (
            "2. no interval of Auto is wider than the wider of SNIPS's and SNDR's",
            f"{found} of {logs} logs; at most {wider['most']:.4f} times as wide",
            not found,
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
