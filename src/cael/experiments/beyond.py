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
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from cael.experiments import trial
from cael.experiments.beyond_page import page
from cael.experiments.sweep_cells import cells, sweeps


def boosted(names: list[str], runs: int, jobs: int, done: Container[tuple[str, int]] = ()) -> Iterator[dict[str, Any]]:
    """The rows of the gradient-boosted direct method, as they end. done: (cell, seed) of those that are there."""
    from joblib import Parallel, delayed

    wanted = [
        (name, trial.Task(((cell.world, seed),), cell.n, {"kind": "BoostedDM"}, "BoostedDM", "cpu", False))
        for seed in range(runs) for name, (_, cell) in cells().items()
        if name in names and (name, seed) not in done
    ]  # fmt: skip
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(
        delayed(_boosted)(name, task) for name, task in wanted
    )


def _boosted(name: str, task: trial.Task) -> dict[str, Any]:
    row = trial.run(task)[0]
    kept: dict[str, Any] = {each: row[each] for each in ("seed", "truth", "value", "error") if each in row}
    return {"cell": name, **kept, "seconds": round(row["cost"]["seconds"], 3)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("boosted", "page"))
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", nargs="+", help="of the paper's sweeps; all by default")
    told = parser.parse_args(arguments)
    if told.what == "page":
        page(told.results)
        return
    path = told.results / "boosted.json"
    before = json.loads(path.read_text()) if path.exists() else []
    rows = [row for row in before if "error" not in row]  # what failed is tried again
    done = {(row["cell"], row["seed"]) for row in rows}
    for row in boosted(told.cells or sweeps(), told.runs, told.jobs, done):
        rows.append(row)
        rows.sort(key=lambda each: (each["cell"], each["seed"]))
        path.write_text("[\n" + ",\n".join(json.dumps(each) for each in rows) + "\n]\n")
        print(f"{row['cell']}, seed {row['seed']}: {row.get('value', row.get('error'))}", flush=True)


if __name__ == "__main__":
    main()
