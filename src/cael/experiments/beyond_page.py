"""The tables of CAEL beside everything else that the documentation includes, from published experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cael.experiments.publish import published
from cael.experiments.sweep_cells import DEFAULT, cells, sweeps

COLUMNS = (
    "CAEL", "Auto", "SNIPS", "SNDR", "DR", "DM", "BoostedDM", "NetworkDM", "MIPS", "IPS", "LoggedMean", "CAELMIPS",
    "AELMIPS",
)  # fmt: skip
OTHERS = tuple(name for name in COLUMNS if name not in ("CAEL", "Auto", "LoggedMean"))


def page(folder: Path) -> None:
    """Write beyond.inc (errors), beyond_intervals.inc (coverage) and beyond_summary.inc (sentences) into `folder`."""
    for name, text in rendered(folder).items():
        (folder / f"{name}.inc").write_text(text)


def rendered(folder: Path) -> dict[str, str]:
    """The texts of the pages by name."""
    found = gathered(folder)
    return {"beyond": _errors(found), "beyond_intervals": _intervals(found), "beyond_summary": _summary(found)}


def gathered(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Cell -> estimator -> its line, of what is published in `folder`."""
    tables = {name: entry[0] for name in {name for name, _ in cells().values()} if (entry := published(folder, name))}
    path = folder / "boosted.json"
    boosted = json.loads(path.read_text()) if path.exists() else []
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, (experiment, cell) in cells().items():
        if experiment not in tables or cell.at not in tables[experiment].truths:
            continue
        rows = {each: of for (at, each), of in tables[experiment].rows.items() if at == cell.at}
        rows["BoostedDM"] = [row for row in boosted if row["cell"] == name]
        lines = {each: _line(rows.get(each, []), tables[experiment].truths[cell.at]) for each in COLUMNS}
        found[name] = {each: line for each, line in lines.items() if line}
    return found


def _line(rows: list[dict[str, Any]], truth: float) -> dict[str, Any]:
    known = [row for row in rows if "value" in row]
    if not known:
        return {}
    errors = np.array([row["value"] - truth for row in known])
    line: dict[str, Any] = {
        "mse": float((errors**2).mean()),
        "mse_error": float((errors**2).std(ddof=1) / np.sqrt(len(known))),
        "runs": len(known),
    }
    if "normal_low" in known[0]:
        line["coverage"] = float(np.mean([row["normal_low"] <= truth <= row["normal_high"] for row in known]))
        line["width"] = float(np.median([row["normal_high"] - row["normal_low"] for row in known]))
        line["aware_coverage"] = float(np.mean([row["low"] <= truth <= row["high"] for row in known]))
        line["aware_width"] = float(np.median([row["high"] - row["low"] for row in known]))
        z = [abs(row["mean_weight_z"]) for row in known if row["mean_weight_z"] is not None]
        line["largest_mean_weight_z"] = max(z, default=0.0)
    return line


def _errors(found: dict[str, Any]) -> str:
    shown = [name for name in COLUMNS if any(name in lines for lines in found.values())]
    head = "| problem | " + " | ".join(shown) + " |\n|---|" + "---:|" * len(shown) + "\n"
    body = ""
    for name, lines in found.items():
        best = min(line["mse"] for each, line in lines.items() if each != "LoggedMean")
        body += f"| {name} | " + " | ".join(_cell(lines.get(each), best) for each in shown) + " |\n"
    return head + body


def _cell(line: dict[str, Any] | None, best: float) -> str:
    if line is None:
        return ""
    text = f"{line['mse']:.2g} ± {line['mse_error']:.1g}"
    return f"**{text}**" if line["mse"] <= 1.2 * best else text


def _intervals(found: dict[str, Any]) -> str:
    head = "| problem | CAEL, bias-aware | its width | CAEL, normal | its width | Auto, bias-aware | mean weight, z |\n"
    body = ""
    for name, lines in found.items():
        one, two = lines.get("CAEL"), lines.get("Auto")
        if one and two:
            body += (
                f"| {name} | {one['aware_coverage']:.0%} | {one['aware_width']:.2g} | {one['coverage']:.0%} | "
                f"{one['width']:.2g} | {two['aware_coverage']:.0%} | {one['largest_mean_weight_z']:.1f} |\n"
            )
    return head + "|---|---:|---:|---:|---:|---:|---:|\n" + body


def _summary(found: dict[str, Any]) -> str:
    """What the tables say about each aim, counted from the same numbers."""
    swept = {name: found[name] for name in sweeps() if name in found}
    apart = {name: lines for name, lines in found.items() if name not in swept}
    said = [*_default(swept), *_sweeps(swept), *(_other_worlds(apart) if apart else [])]
    said.append(_coverage([*swept.values(), *apart.values()]))
    return "".join(f"- {each}\n" for each in said)


def _default(swept: dict[str, Any]) -> list[str]:
    default = swept[DEFAULT]
    others = {each: default[each]["mse"] for each in OTHERS if each in default}
    nearest, mine = min(others, key=lambda each: others[each]), default["CAEL"]
    return [
        f"On the paper's default problem CAEL has a mean squared error of {mine['mse']:.4f} ± {mine['mse_error']:.4f}; "
        f"the best of the others that were run, {nearest}, has {others[nearest]:.3f}: "
        f"{others[nearest] / mine['mse']:.0f} times as much."
    ]


def _sweeps(swept: dict[str, Any]) -> list[str]:
    ratios = {name: _ratio(lines, "CAEL", OTHERS) for name, lines in swept.items()}
    known = [ratio for ratio in ratios.values() if ratio]
    worse = [f"{name} ({ratio:.1f} times the best)" for name, ratio in ratios.items() if ratio and ratio > 1.2]
    paper = [lines["CAELMIPS"]["mse"] / lines["CAEL"]["mse"] for lines in swept.values() if "CAELMIPS" in lines]
    return [
        f"In {len(known) - len(worse)} of the {len(known)} cells of the paper's sweeps that have other estimators to "
        "compare with, CAEL is the best or within 1.2 times the best"
        + (f"; not in {', '.join(worse)}." if worse else "."),
        f"Against the paper's algorithm, run in {len(paper)} cells, the median ratio of mean squared errors is "
        f"{np.median(paper):.0f}, the least {min(paper):.1f}.",
    ]


def _other_worlds(apart: dict[str, Any]) -> list[str]:
    said = []
    for who in ("CAEL", "Auto"):
        ratios = {name: _ratio(lines, who, ("SNIPS", "SNDR")) for name, lines in apart.items()}
        bad = [f"{name} ({ratio:.1f})" for name, ratio in ratios.items() if ratio and ratio > 1.5]
        said.append(
            f"In the {sum(ratio is not None for ratio in ratios.values())} other worlds, {who} is nowhere worse than "
            "1.5 times the better of SNIPS and SNDR" + (f", but in {', '.join(bad)}." if bad else ".")
        )
    regrets = [_ratio(lines, "Auto", (*OTHERS, "CAEL")) for lines in apart.values()]
    mean = np.exp(np.mean(np.log([ratio for ratio in regrets if ratio])))
    said.append(
        "Auto's regret there, the ratio of its mean squared error to that of the best in hindsight, has a geometric "
        f"mean of {mean:.2f}."
    )
    return said


def _coverage(cells_of: Sequence[dict[str, Any]]) -> str:
    lines = [lines["CAEL"] for lines in cells_of if "CAEL" in lines]
    return (
        f"The bias-aware 95% interval of CAEL covers less than 93% in "
        f"{sum(line['aware_coverage'] < 0.93 for line in lines)} of {len(lines)} cells, the plain normal interval in "
        f"{sum(line['coverage'] < 0.93 for line in lines)}."
    )


def _ratio(lines: dict[str, Any], who: str, others: Sequence[str]) -> float | None:
    known = [lines[each]["mse"] for each in others if each in lines]
    return lines[who]["mse"] / min(known) if who in lines and known else None
