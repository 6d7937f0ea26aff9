"""The rule of a claim in a line: metric, estimators, cells, experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORDS = {"bias": "|bias|", "mse": "MSE", "bias_loss": "L_bias", "variance_loss": "L_var"}
"""Statistics as they are written."""
SHARE = "share of runs in which the squared error of {estimator} is below {below} of that of IPS"
RULES = {
    "order": "{statistic} of {smaller} < that of {larger}",
    "chain": "{statistic} grows along {order}",
    "trend": "{statistic} of {estimators}: at {end} > {factor}that at {start}",
    "falls": "{statistic} of {estimators}: at the last cell < that at the first",
    "steps": "{statistic} of {estimators} {direction} from the first cell to the last, and no step goes the other way",
    "rate": "{statistic} of {estimators}: the last cell is {expected} times the first, within a factor of {within}",
    "similar": "{statistic} of {pair}: within a factor of {within}",
    "fades": "{statistic} of {against} over that of {of}: above 1 in the first cell, and larger there than in the last",
    "small_price": "variance of {of} > that of {against}, MSE <",
    "dominated": "MSE of {estimator}: more than half is {by}",
    "about": SHARE + ": {share}, as far as 30 runs can tell",
    "above": SHARE + ": more than {share}",
    "never": SHARE + ": 0, as far as 30 runs can tell, and less than for {unlike}",
    "most_runs": "{estimator} nearer to the truth than {others}, each in more than {share} of the runs",
}
"""Rule -> how it is said."""
IN_CELLS = ("order", "chain", "similar", "small_price", "dominated")
"""Rules that go cell by cell."""
ONE_CELL = ("bias-variance-mse", "open-bandit", "open-bandit-published", "open-bandit-known", "ablation")
"""Experiments that have one cell only."""


def written(statistic: str) -> str:
    return WORDS.get(statistic, statistic)


def rule_of(specs: Sequence[str], test: str, settings: dict[str, Any]) -> str:
    """In words, with the cells and the experiments."""
    s: dict[str, Any] = {"within": 2, "share": 0.5, "start": "the first cell", "end": "the last cell", **settings}
    factor = settings.get("factor", 1)
    s |= {"direction": "grows" if s.get("up") else "falls", "factor": "" if factor == 1 else f"{factor:g} times "}
    text = RULES.get(test, test).replace(">", "<" if factor < 1 else ">")
    return text.format(**_listed(s)) + _where(specs, test, settings)


def _listed(settings: dict[str, Any]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in settings.items()}
    return texts | ({"statistic": written(settings["statistic"])} if "statistic" in settings else {})


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _where(specs: Sequence[str], test: str, settings: dict[str, Any]) -> str:
    at = settings.get("at", "last" if test == "similar" else "all")
    if isinstance(at, dict):
        return "; in " + "; ".join(f"{name} at {_text(cells)}" for name, cells in at.items())
    cells = {"all": "in every cell of ", "first": "in the first cell of ", "last": "in the last cell of "}
    where = cells[at] if isinstance(at, str) else f"at {_text(at)} in "
    return f"; {where if test in IN_CELLS and not set(specs) <= {*ONE_CELL} else 'in '}{', '.join(specs)}"
