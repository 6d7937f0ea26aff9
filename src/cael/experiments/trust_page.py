"""The tables of the documentation on what can be trusted, from what a run has summed up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cael.experiments.ledger import read_json
from cael.experiments.markdown import table

NONE = "Not measured yet; `make trust` does it.\n"
BOTH = ("Auto", "SNDR")


def page(folder: Path) -> None:
    """Render trust.json in `folder` as the tables that the documentation includes."""
    for name, text in rendered(read_json(folder / "trust.json", {})).items():
        (folder / f"trust_{name}.inc").write_text(text, "utf-8")


def rendered(facts: dict[str, Any]) -> dict[str, str]:
    """The texts of the pages by name."""
    facts = {**facts, "errors": facts.get("worlds")}
    return {name: make(facts[name]) if facts.get(name) else NONE for name, make in PAGES.items()}


def share(count: int, trials: int) -> str:
    """A share with its Monte Carlo standard error, in percent; a 95% limit where it was seen never or always."""
    if trials == 0:
        return ""
    if count == 0:
        return f"0\u00a0(<\u00a0{300 / trials:.1f})" if trials > 3 else "0"
    if count == trials:
        return f"100\u00a0(>\u00a0{100 - 300 / trials:.1f})" if trials > 3 else "100"
    p = count / trials
    return f"{100 * p:.1f}\u00a0±\u00a0{100 * math.sqrt(p * (1 - p) / trials):.1f}"


def _error(pair: Sequence[float], digits: int = 2) -> str:
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


def _bold(text: str, when: bool) -> str:
    return f"**{text}**" if when else text


def sizes(counts: dict[str, Any]) -> str:
    """What the tables rest on, in a sentence."""
    text = (
        f"{counts['sound']:,} sound logs of {counts['worlds']} worlds with learning, {counts['learned']:,} with those "
        f"that were broken, {counts['all']:,} with those without learning"
    )
    seeds = f" (seeds {counts['seeds'][0]} to {counts['seeds'][1]})" if counts["seeds"] else ""
    made = counts.get("versions", {})
    by = f" Rows by version of the source: {', '.join(f'{name} {n:,}' for name, n in made.items())}." if made else ""
    return f"{text}{seeds}; {counts['population_logs']} logs of {counts['population']} worlds drawn at random.{by}\n"


def targets(lines: Sequence[dict[str, Any]]) -> str:
    words = {True: "holds", False: "**does not hold**", None: "not measured"}
    rows = [[line["target"], line["finding"], words[line["holds"]]] for line in lines]
    return table(["target", "finding", ""], rows, words=3)


def worlds(lines: Sequence[dict[str, Any]]) -> str:
    """Errors, intervals and power by world."""
    heads = ["world", "rows", "actions", "n / E w²", "MSE, Auto over simple", "over the best", "best", "covers, %",
             "stretch", "SNDR's", "width over SNDR's", "lift covers, %", "lift shown, %", "SNDR's",
             "slower"]  # fmt: skip
    return table(heads, [_world(line) for line in lines])


def _world(line: dict[str, Any]) -> list[str]:
    ratio, stretch = line["ratio"], line["stretch"]
    return [
        line["world"], f"{line['n']:,}", f"{line['k']:,}", f"{line['overlap']:,.0f}",
        _bold(_error(ratio), ratio[0] > 1.2), f"{line['regret'][0]:.2f}", line["best"], share(*line["Auto"]["covers"]),
        f"{stretch['Auto']:.2f}", f"{stretch['SNDR']:.2f}", f"{line['width']:.2f}",
        share(*line["Auto"]["lift_covers"]), *(share(*line[who]["power"]) for who in BOTH),
        f"{line['time'][1] / line['time'][0]:.1f}",
    ]  # fmt: skip


def errors(lines: Sequence[dict[str, Any]]) -> str:
    """The mean squared error of every estimator, as a multiple of the best one's; within 1.2 times it in bold."""
    names = list(dict.fromkeys(name for line in lines for name in line["mse"]))
    rows = []
    for line in lines:
        best = line["mse"][line["best"]][0] or 1.0
        ratios = {name: (mse[0] / best, mse[1] / best) for name, mse in line["mse"].items()}
        cells = (_bold(f"{pair[0]:.3g} ± {pair[1]:.1g}", pair[0] <= 1.2) if (pair := ratios.get(name)) else ""
                 for name in names)  # fmt: skip
        rows.append([line["world"], f"{best:.2g}", *cells])
    return table(["world", "best MSE", *names], rows)


def _class(bounds: Sequence[float | None]) -> str:
    low, high = bounds
    if not low and high is None:
        return "all"
    return f"below {high:g}" if not low else f"{low:g} and more" if high is None else f"{low:g} to {high:g}"


def population(lines: Sequence[dict[str, Any]]) -> str:
    """Errors, intervals and power on worlds drawn at random, by overlap."""
    heads = ["n / E w²", "logs", "RMS error, Auto", "SNDR", "SNIPS", "MSE, Auto over simple", "covers, %", "SNDR's",
             "stretch", "SNDR's", "width over SNDR's", "lift shown, %", "SNDR's"]  # fmt: skip
    return table(heads, [_population(line) for line in lines if line["logs"]])


def _population(line: dict[str, Any]) -> list[str]:
    return [
        _class(line["class"]), f"{line['logs']}", *(_error(line["rmse"][who], 3) for who in (*BOTH, "SNIPS")),
        _error(line["ratio"]), *(share(*line[who]["covers"]) for who in BOTH),
        *(f"{line['stretch'][who]:.2f}" for who in BOTH), f"{line['width']:.2f}",
        *(share(*line[who]["power"]) for who in BOTH),
    ]  # fmt: skip


VERDICT = ["logs", "ok", "caution", "refuse", "truth outside", "false ok", "refused, of those that cover"]


def _verdict(line: dict[str, Any]) -> list[str]:
    n = line["logs"]
    return [
        f"{n}", *(share(line[name], n) for name in ("ok", "caution", "refuse", "missed")),
        _bold(share(line["false_ok"], n), line["false_ok"] > 0.05 * n), share(line["covers_refused"], line["covers"]),
    ]  # fmt: skip


def verdicts(lines: Sequence[dict[str, Any]]) -> str:
    rows = [[line["condition"], line["headline"], *_verdict(line)] for line in lines]
    return table(["log", "headline", *VERDICT], rows, words=2)


def verdict_worlds(lines: Sequence[dict[str, Any]]) -> str:
    heads = ["world", *(f"{who}, {text}" for who in BOTH for text in
                        ("sound: ok", "refuse", "false ok", "broken: ok", "false ok"))]  # fmt: skip
    return table(heads, [[line["world"], *(cell for who in BOTH for cell in _on(line[who]))] for line in lines])


def _on(counts: dict[str, dict[str, int]]) -> list[str]:
    named = [("sound", "ok"), ("sound", "refuse"), ("sound", "false_ok"), ("broken", "ok"), ("broken", "false_ok")]
    return [share(counts[group][name], counts[group]["logs"]) for group, name in named]


def classes(lines: Sequence[dict[str, Any]]) -> str:
    rows = [[line["worlds"], _class(line["class"]), line["headline"], *_verdict(line)] for line in lines]
    return table(["worlds", "n / E w²", "headline", *VERDICT], rows, words=3)


def checks(lines: Sequence[dict[str, Any]]) -> str:
    """Type I errors of the checks that have a level."""
    heads = ["check", "headline", "level, %", "logs", "rejected, %", "most in", "there, %", "beyond chance in"]
    return table(heads, [_check(line) for line in lines], words=2)


def _check(line: dict[str, Any]) -> list[str]:
    return [
        f"`{line['check']}`", line["headline"], f"{100 * line['nominal']:.2g}", f"{line['rejected'][1]}",
        share(*line["rejected"]), line["worst"], share(*line["worst_rejected"]), ", ".join(line["beyond"]) or "none",
    ]  # fmt: skip


def joint(lines: Sequence[dict[str, Any]]) -> str:
    """False directions among ten equal arms."""
    heads = ["command", "headline", "success rate", "logs", "a false direction, %", "one with ok, %"]
    rows = [
        [
            f"`{line['command']}`", line["headline"], f"{line['rate']:.1%}", f"{line['false'][1]}",
            share(*line["false"]), share(*line["false_ok"]) if line["false_ok"] else "",
        ]
        for line in lines
    ]  # fmt: skip
    return table(heads, rows, words=2)


PAGES: dict[str, Callable[[Any], str]] = {
    "sizes": sizes, "targets": targets, "worlds": worlds, "errors": errors, "population": population,
    "verdicts": verdicts, "verdict_worlds": verdict_worlds, "classes": classes, "checks": checks, "joint": joint,
}  # fmt: skip
