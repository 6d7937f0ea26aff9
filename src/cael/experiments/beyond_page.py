"""The rows of `cael.experiments.beyond` as the tables that the documentation includes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cael.experiments.beyond import cells, sweeps

COLUMNS = (
    "CAEL", "Auto", "SNIPS", "SNDR", "DR", "DM", "BoostedDM", "MIPS", "IPS", "LoggedMean", "CAELMIPS", "AELMIPS",
)  # fmt: skip
OTHERS = tuple(name for name in COLUMNS if name not in ("CAEL", "Auto", "LoggedMean"))


def publish(files: Sequence[Path], folder: Path) -> None:
    """Summarise the rows of `files` into beyond.json, and render it."""
    rows = [row for file in files for row in json.loads(file.read_text())]
    found = {}
    for name, (world, n) in cells().items():
        truth = float(world.value(world.target))
        some = [row for row in rows if row["cell"] == name]
        lines = {each: _line([row for row in some if row["estimator"] == each], truth) for each in COLUMNS}
        kept = {each: line for each, line in lines.items() if line}
        if kept:
            found[name] = {"truth": truth, "rows": n, "actions": world.n_actions, "estimators": kept}
    (folder / "beyond.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    page(folder)


def _line(rows: list[dict[str, Any]], truth: float) -> dict[str, Any]:
    rows = list({row["seed"]: row for row in rows}.values())
    known = [row for row in rows if "value" in row]
    if not known:
        return {}
    errors = np.array([row["value"] - truth for row in known])
    line: dict[str, Any] = {
        "trials": len(known),
        "failed": len(rows) - len(known),
        "bias": float(errors.mean()),
        "mse": float((errors**2).mean()),
        "mse_error": float((errors**2).std(ddof=1) / np.sqrt(len(known))),
        "coverage": float(np.mean([row["low"] <= truth <= row["high"] for row in known])),
    }
    if known[0]["aware_low"] is not None and rows[0]["estimator"] in ("CAEL", "Auto"):
        line["aware_coverage"] = float(np.mean([row["aware_low"] <= truth <= row["aware_high"] for row in known]))
        line["aware_width"] = float(np.median([row["aware_high"] - row["aware_low"] for row in known]))
        line["width"] = float(np.median([row["high"] - row["low"] for row in known]))
        z = [abs(row["mean_weight_z"]) for row in known if row["mean_weight_z"] is not None]
        line["largest_mean_weight_z"] = max(z, default=0.0)
    return line


def page(folder: Path) -> None:
    """Render beyond.json as beyond.inc (errors), beyond_intervals.inc (coverage) and beyond_summary.inc (sentences)."""
    found = json.loads((folder / "beyond.json").read_text())
    (folder / "beyond.inc").write_text(_errors(found))
    (folder / "beyond_intervals.inc").write_text(_intervals(found))
    (folder / "beyond_summary.inc").write_text(_summary(found))


def _errors(found: dict[str, Any]) -> str:
    shown = [name for name in COLUMNS if any(name in cell["estimators"] for cell in found.values())]
    head = "| problem | " + " | ".join(shown) + " |\n|---|" + "---:|" * len(shown) + "\n"
    body = ""
    for name, cell in found.items():
        lines = cell["estimators"]
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
    for name, cell in found.items():
        one, two = cell["estimators"].get("CAEL"), cell["estimators"].get("Auto")
        if one and two:
            body += (
                f"| {name} | {one['aware_coverage']:.0%} | {one['aware_width']:.2g} | {one['coverage']:.0%} | "
                f"{one['width']:.2g} | {two['aware_coverage']:.0%} | {one['largest_mean_weight_z']:.1f} |\n"
            )
    return head + "|---|---:|---:|---:|---:|---:|---:|\n" + body


def _summary(found: dict[str, Any]) -> str:
    """What the tables say about each aim, counted from the same numbers."""
    said = []
    default = found.get("n = 1000, k = 500", {}).get("estimators", {})
    if "CAEL" in default:
        others = {each: default[each]["mse"] for each in OTHERS if each in default}
        nearest = min(others, key=lambda each: others[each])
        mine = default["CAEL"]["mse"]
        said.append(
            f"On the paper's default problem CAEL has a mean squared error of {mine:.4f} ± "
            f"{default['CAEL']['mse_error']:.4f}; the best of the others that were run, {nearest}, has "
            f"{others[nearest]:.3f}: {others[nearest] / mine:.0f} times as much."
        )
    swept = [name for name in sweeps() if name in found]
    ratios = {name: _ratio(found[name]["estimators"], "CAEL", OTHERS) for name in swept}
    worse = [f"{name} ({ratio:.1f} times the best)" for name, ratio in ratios.items() if ratio and ratio > 1.2]
    known = [ratio for ratio in ratios.values() if ratio]
    said.append(
        f"In {sum(ratio <= 1.2 for ratio in known)} of the {len(known)} cells of the paper's sweeps that have other "
        f"estimators to compare with, CAEL is the best or within 1.2 times the best"
        + (f"; not in {', '.join(worse)}." if worse else ".")
    )
    paper = [
        found[name]["estimators"]["CAELMIPS"]["mse"] / found[name]["estimators"]["CAEL"]["mse"]
        for name in swept
        if "CAELMIPS" in found[name]["estimators"]
    ]
    if paper:
        said.append(
            f"Against the paper's algorithm, run in {len(paper)} cells, the median ratio of mean squared errors is "
            f"{np.median(paper):.0f}, the least {min(paper):.1f}."
        )
    for who in ("CAEL", "Auto"):
        apart = {
            name: _ratio(cell["estimators"], who, ("SNIPS", "SNDR"))
            for name, cell in found.items()
            if name not in swept
        }
        bad = [f"{name} ({ratio:.1f})" for name, ratio in apart.items() if ratio and ratio > 1.5]
        good = [ratio for ratio in apart.values() if ratio]
        said.append(
            f"In the {len(good)} other worlds, {who} is nowhere worse than 1.5 times the better of SNIPS and SNDR"
            + (f", but in {', '.join(bad)}." if bad else ".")
        )
    regrets = [
        _ratio(cell["estimators"], "Auto", (*OTHERS, "CAEL")) for name, cell in found.items() if name not in swept
    ]
    told = [ratio for ratio in regrets if ratio]
    if told:
        said.append(
            "Auto's regret there, the ratio of its mean squared error to that of the best in hindsight, has a "
            f"geometric mean of {np.exp(np.mean(np.log(told))):.2f}."
        )
    lines = [cell["estimators"]["CAEL"] for cell in found.values() if "CAEL" in cell["estimators"]]
    low = sum(line["aware_coverage"] < 0.93 for line in lines)
    normal = sum(line["coverage"] < 0.93 for line in lines)
    said.append(
        f"The bias-aware 95% interval of CAEL covers less than 93% in {low} of {len(lines)} cells, the plain normal "
        f"interval in {normal}."
    )
    return "".join(f"- {each}\n" for each in said)


def _ratio(lines: dict[str, Any], who: str, others: Sequence[str]) -> float | None:
    known = [lines[each]["mse"] for each in others if each in lines]
    return lines[who]["mse"] / min(known) if who in lines and known else None
