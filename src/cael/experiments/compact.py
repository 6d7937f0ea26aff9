"""Rows of a real run as a small file that a repository can hold, and back."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

from cael.experiments.spec import Spec
from cael.experiments.summary import Table
from cael.experiments.trial import LEARNED

NUMBERS = ("value", "low", "high", "normal_low", "normal_high", "mean_weight", "mean_weight_z", *LEARNED)
HEAD = ("at", "estimator", "seed", "truth", *NUMBERS, "seconds", "megabytes", "error")


def write(table: Table, path: Path) -> None:
    """A gzipped CSV file, byte-identical for the same rows."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEAD)
    for (at, name), rows in table.rows.items():
        for row in rows:
            numbers = [_short(row.get(column)) for column in NUMBERS]
            cost = [_short(row["cost"]["seconds"], 4), _short(row["cost"]["megabytes"], 4)]
            writer.writerow([at, name, row["seed"], repr(row["truth"]), *numbers, *cost, row.get("error", "")])
    path.write_bytes(gzip.compress(buffer.getvalue().encode(), mtime=0))


def read(spec: Spec, path: Path) -> list[dict[str, Any]]:
    """The rows again, as `execute` gives them."""
    cells = {str(cell.at): cell for cell in spec.cells}
    rows = []
    for fields in csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())):
        cell = cells[fields["at"]]
        numbers: dict[str, float | None] = {name: float(fields[name]) for name in NUMBERS if fields.get(name)}
        if "value" in numbers:
            numbers = {"mean_weight": None, "mean_weight_z": None, **numbers}
        row: dict[str, Any] = {
            "world": cell.world, "n": cell.n, "estimator": fields["estimator"], "seed": int(fields["seed"]),
            "truth": float(fields["truth"]), **numbers,
            "cost": {name: float(fields[name]) if fields[name] else None for name in ("seconds", "megabytes")},
        }  # fmt: skip
        rows.append({**row, "error": fields["error"]} if fields["error"] else row)
    return rows


def _short(number: float | None, digits: int = 9) -> str:
    return "" if number is None else f"{number:.{digits}g}"
