"""A tree of depth 2 for the patients of ACTG 175, with its certificate, in words.

python benchmarks/learned_trial.py --write     # docs/results/learned_actg175.inc

The trial is written to a table with its names, which cael learn reads as any other log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import cael
from cael.datasets import actg175

RESULT = Path(__file__).resolve().parent.parent / "docs" / "results" / "learned_actg175.inc"


def table() -> pa.Table:
    """The trial as a table: what was known of a patient, the arm, the outcome and the chance of the arm."""
    trial = actg175()
    columns = {name: trial.contexts[:, at] for at, name in enumerate(trial.names)}
    arms = np.array(trial.arm_names)[trial.arms]
    return pa.table({**columns, "arm": arms, "cd4": trial.outcomes, "propensity": trial.propensities})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "actg175.parquet"
        pq.write_table(table(), path)
        columns = {"action": "arm", "reward": "cd4", "contexts": list(actg175().names)}
        learned = cael.learn(cael.read(path, columns=columns), candidates=["tree"], depth=2)
    text = f"```text\n{learned.sentence()}\n{learned.verdict}\n\n{learned.explain()}\n```\n"
    if parser.parse_args().write:
        RESULT.write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
