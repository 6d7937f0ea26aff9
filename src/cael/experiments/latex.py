r"""Tables for a paper: LaTeX with booktabs, from the same lines as every other table."""

from __future__ import annotations

from collections.abc import Sequence

from cael.experiments.claims import Verdict
from cael.experiments.summary import Line, Table, failed_of

SPECIAL = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
}


def escaped(text: str) -> str:
    r"""Text with what LaTeX would take for a command.

    >>> print(escaped("5% of n_actions"))
    5\% of n\_actions
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def tabular(heads: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    """A booktabs table of cells that are LaTeX already. columns: as in lrrr."""
    lines = [" & ".join(cells) + r" \\" for cells in (heads, *rows)]
    body = [lines[0], r"\midrule", *lines[1:]]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}", ""])


def accuracy(table: Table, lines: Sequence[Line]) -> str:
    """Bias, variance and MSE of each estimator, in each cell, with their Monte Carlo standard errors."""
    axis = [escaped(table.spec.axis)] if table.spec.axis else []
    rows = []
    for line in lines:
        pairs = [(line.bias, line.bias_error), (line.variance, line.variance_error), (line.mse, line.mse_error)]
        numbers = [rf"${value:.3g} \pm {error:.1g}$" if line.runs else "" for value, error in pairs]
        rows.append([*([escaped(str(line.at))] if axis else []), escaped(line.estimator + failed_of(line)), *numbers])
    return tabular([*axis, "estimator", "bias", "variance", "MSE"], rows, "l" * (1 + len(axis)) + "rrr")


def verdicts(rows: Sequence[tuple[Verdict, ...]], readings: Sequence[str]) -> str:
    """The sentences of the paper, each with its verdict under every reading."""
    cells = [
        [escaped(f"{row[0].claim.where}: {row[0].claim.sentence}"), *(verdict.verdict for verdict in row)]
        for row in rows
    ]
    return tabular(["sentence", *readings], cells, "p{0.5\\textwidth}" + "l" * len(readings))
