"""Tables of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """A Markdown table. words: how many columns are flush left; the others, of numbers, are flush right."""
    sides = "|---" * words + "|---:" * (len(heads) - words) + "|"
    return "\n".join([_line(heads), sides, *map(_line, rows)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
