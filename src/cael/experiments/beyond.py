"""CAEL and Auto against everything, in every cell of the paper's sweeps and in worlds that were not made for them.

    python -m cael.experiments.beyond boosted docs/results [--runs 10] [--jobs 2] [--cells CELL ...]
    python -m cael.experiments.beyond page docs/results

The rows are those of the published experiments (`cael.experiments.publish`). Gradient boosting, which takes half a
minute for one log, is in none of them: its rows are in boosted.json, and what has a row is not run again. Run t of a
cell is the log of seed t; the estimators were tuned on other seeds (1000 and above).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cael.experiments import trial
from cael.experiments.beyond_page import page
from cael.experiments.ledger import in_parallel, read_json
from cael.experiments.sweep_cells import cells, sweeps


def boosted(name: str, task: trial.Task) -> dict[str, Any]:
    """The row of the gradient-boosted direct method on one log of a cell."""
    row = trial.run(task)[0]
    kept: dict[str, Any] = {key: row[key] for key in ("seed", "truth", "value", "error") if key in row}
    return {"cell": name, **kept, "seconds": round(row["cost"]["seconds"], 3)}


def run(path: Path, names: Sequence[str], runs: int, jobs: int) -> None:
    """Rows into the file as they end; what failed before is tried again."""
    rows = [row for row in read_json(path, []) if "error" not in row]
    done = {(row["cell"], row["seed"]) for row in rows}
    calls = [
        (name, trial.Task(((cell.world, seed),), cell.n, {"kind": "BoostedDM"}, "BoostedDM", "cpu", False))
        for seed in range(runs) for name, (_, cell) in cells().items()
        if name in names and (name, seed) not in done
    ]  # fmt: skip
    for row in in_parallel(boosted, calls, jobs):
        rows = sorted([*rows, row], key=lambda row: (row["cell"], row["seed"]))
        path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
        print(f"{row['cell']}, seed {row['seed']}: {row.get('value', row.get('error'))}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("boosted", "page"))
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", nargs="+", help="of the paper's sweeps; all by default")
    options = parser.parse_args(arguments)
    if options.what == "page":
        page(options.results)
    else:
        run(options.results / "boosted.json", options.cells or sweeps(), options.runs, options.jobs)


if __name__ == "__main__":
    main()
