"""The tables of CAEL beside everything else that the documentation includes, from published experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cael.experiments.ledger import read_json
from cael.experiments.markdown import table
from cael.experiments.publish import published
from cael.experiments.summary import accuracy_of
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
    lines = gathered(folder)
    return {"beyond": _errors(lines), "beyond_intervals": _intervals(lines), "beyond_summary": _summary(lines)}


def gathered(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Cell -> estimator -> its line, of what is published in `folder`."""
    tables = {name: entry[0] for name in {name for name, _ in cells().values()} if (entry := published(folder, name))}
    boosted = read_json(folder / "boosted.json", [])
    lines: dict[str, dict[str, dict[str, Any]]] = {}
    for name, (experiment, cell) in cells().items():
        if experiment in tables and cell.at in tables[experiment].truths:
            table = tables[experiment]
            rows = {estimator: table.rows.get((cell.at, estimator), []) for estimator in COLUMNS}
            rows["BoostedDM"] = [row for row in boosted if row["cell"] == name]
            every = {estimator: _line(rows[estimator], table.truths[cell.at]) for estimator in COLUMNS}
            lines[name] = {estimator: line for estimator, line in every.items() if line}
    return lines


def _line(rows: list[dict[str, Any]], truth: float) -> dict[str, Any]:
    known = [row for row in rows if "value" in row]
    if not known:
        return {}
    line = {**vars(accuracy_of(np.array([row["value"] - truth for row in known])))}
    for name, low, high in (("", "normal_low", "normal_high"), ("aware_", "low", "high")):
        if "normal_low" in known[0]:
            line[f"{name}coverage"] = float(np.mean([row[low] <= truth <= row[high] for row in known]))
            line[f"{name}width"] = float(np.median([row[high] - row[low] for row in known]))
    z = [abs(row["mean_weight_z"]) for row in known if row.get("mean_weight_z") is not None]
    return {**line, "largest_mean_weight_z": max(z, default=0.0)}


def _errors(cells_of: dict[str, Any]) -> str:
    shown = [name for name in COLUMNS if any(name in lines for lines in cells_of.values())]
    rows = []
    for name, lines in cells_of.items():
        best = min(line["mse"] for estimator, line in lines.items() if estimator != "LoggedMean")
        rows.append([name, *(_cell(lines.get(estimator), best) for estimator in shown)])
    return table(["problem", *shown], rows)


def _cell(line: dict[str, Any] | None, best: float) -> str:
    if line is None:
        return ""
    text = f"{line['mse']:.2g} ± {line['mse_error']:.1g}"
    return f"**{text}**" if line["mse"] <= 1.2 * best else text


def _intervals(cells_of: dict[str, Any]) -> str:
    heads = ["CAEL, bias-aware", "its width", "CAEL, normal", "its width", "Auto, bias-aware", "mean weight, z"]
    rows = [
        [
            name, f"{lines['CAEL']['aware_coverage']:.0%}", f"{lines['CAEL']['aware_width']:.2g}",
            f"{lines['CAEL']['coverage']:.0%}", f"{lines['CAEL']['width']:.2g}",
            f"{lines['Auto']['aware_coverage']:.0%}", f"{lines['CAEL']['largest_mean_weight_z']:.1f}",
        ]
        for name, lines in cells_of.items() if lines.keys() >= {"CAEL", "Auto"}
    ]  # fmt: skip
    return table(["problem", *heads], rows)


def _summary(cells_of: dict[str, Any]) -> str:
    """What the tables say about each aim, counted from the same numbers."""
    swept = {name: cells_of[name] for name in sweeps() if name in cells_of}
    apart = {name: lines for name, lines in cells_of.items() if name not in swept}
    sentences = [_default(swept[DEFAULT]), *_sweeps(swept), *(_other_worlds(apart) if apart else [])]
    sentences.append(_coverage([*swept.values(), *apart.values()]))
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _default(lines: dict[str, Any]) -> str:
    others, mine = {name: lines[name]["mse"] for name in OTHERS if name in lines}, lines["CAEL"]
    nearest = min(others, key=lambda name: others[name])
    return (
        f"On the paper's default problem CAEL has a mean squared error of {mine['mse']:.4f} ± {mine['mse_error']:.4f}; "
        f"the best of the others that were run, {nearest}, has {others[nearest]:.3f}: "
        f"{others[nearest] / mine['mse']:.0f} times as much."
    )


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
    sentences = []
    for who in ("CAEL", "Auto"):
        ratios = {name: _ratio(lines, who, ("SNIPS", "SNDR")) for name, lines in apart.items()}
        bad = [f"{name} ({ratio:.1f})" for name, ratio in ratios.items() if ratio and ratio > 1.5]
        sentences.append(
            f"In the {sum(ratio is not None for ratio in ratios.values())} other worlds, {who} is nowhere worse than "
            "1.5 times the better of SNIPS and SNDR" + (f", but in {', '.join(bad)}." if bad else ".")
        )
    regrets = [_ratio(lines, "Auto", (*OTHERS, "CAEL")) for lines in apart.values()]
    mean = np.exp(np.mean(np.log([ratio for ratio in regrets if ratio])))
    sentences.append(
        "Auto's regret there, the ratio of its mean squared error to that of the best in hindsight, has a geometric "
        f"mean of {mean:.2f}."
    )
    return sentences


def _coverage(cells_of: Sequence[dict[str, Any]]) -> str:
    lines = [lines["CAEL"] for lines in cells_of if "CAEL" in lines]
    return (
        f"The bias-aware 95% interval of CAEL covers less than 93% in "
        f"{sum(line['aware_coverage'] < 0.93 for line in lines)} of {len(lines)} cells, the plain normal interval in "
        f"{sum(line['coverage'] < 0.93 for line in lines)}."
    )


def _ratio(lines: dict[str, Any], who: str, others: Sequence[str]) -> float | None:
    known = [lines[name]["mse"] for name in others if name in lines]
    return lines[who]["mse"] / min(known) if who in lines and known else None
