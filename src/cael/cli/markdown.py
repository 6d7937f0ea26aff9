"""Results as Markdown tables. Text from the data is escaped: no cell can break out of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cael.evaluation import Comparison, Evaluation


def cell(text: str) -> str:
    """Text inside a table or a list."""
    for mark in ("\\", "|", "`", "*", "_", "[", "]", "<", ">", "#"):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(cell, head))} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def markdown(result: Any) -> str:
    """A result as Markdown: title, table, doubts."""
    if isinstance(result, Evaluation):
        head: tuple[str, ...] = (
            "estimator",
            "value",
            "std. error",
            f"{result.level:.0%} interval",
            "eff. n",
            "max weight",
        )
        doubts = [f"- {cell(doubt)}" for doubt in result.doubts()]
        return "\n\n".join(
            [f"**{cell(result.policy)}** on {cell(result.log)}", table(head, result.rows()), "\n".join(doubts)]
        )
    if isinstance(result, Comparison):
        head = ("policy", "value", "lift", f"interval, simultaneous {result.level:.0%}", "")
        top = f"Logging policy: {result.baseline.value:.5g} ± {result.baseline.stderr:.2g}"
        return f"{top}\n\n{table(head, result.table())}"
    raise TypeError(f"no Markdown for {type(result).__name__}")
