"""The command `cael reproduce`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Yes = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Machine:
    """Where the trials run."""

    jobs: int | None = None
    "Processes on this machine (default: one per core). Results do not depend on it."
    device: Literal["cpu", "cuda"] = "cpu"
    "Where networks are trained; on cuda, all runs of a problem at once."
    dask: str | None = None
    "Address of a Dask scheduler that runs the trials."


@Parameter(name="*")
@dataclass(frozen=True)
class Extent:
    """How much is run."""

    runs: int | None = None
    "Runs per problem, in place of the experiment's own number."
    estimators: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
    "These estimators, or the groups 'paper' and 'full'. A figure has the paper's by default, an experiment all."
    extended: Yes = False
    "The other readings of the paper and more runs, too; without a name: all that the extended set adds something to."
    quick: Yes = False
    "Few runs and a short training, to see that all works. Without a name: every experiment."
    all: Yes = False
    "Every experiment, in full: hours on a CPU."


def reproduce(
    *names: str,
    out: Path = Path("results"),
    extent: Extent | None = None,
    machine: Machine | None = None,
    check: int | None = None,
    seed: int = 0,
) -> None:
    """Rerun a figure or an experiment of the paper: rows, table, figures, and a verdict on every claim.

    What was interrupted goes on where it stopped, when it is called again with the same --out.

    Parameters
    ----------
    names
        Figures of the paper: figure-1, figure-2, figure-3. Experiments: bias-variance-mse, samples, actions, logging,
        epsilon, noise, open-bandit, open-bandit-published, open-bandit-known, readings, selection, worlds, ablation,
        inputs; or the path of a TOML file of your own.
    out
        Folder of the results; each experiment has its own below it.
    check
        Run nothing new, but so many rows of the folder --out, drawn at random, again, each alone on a CPU, and compare.
    seed
        Of the rows that --check draws.
    """
    from cael.experiments.run import Where, command

    extent, machine = extent or Extent(), machine or Machine()
    if check is not None:
        from cael.experiments.recheck import recheck

        found = recheck(out, check, seed)
        print(found.text())
        raise SystemExit(int(not found.equal))
    where = Where(machine.jobs or os.cpu_count() or 1, machine.dask, machine.device)
    command(
        names, out, where, runs=extent.runs, quick=extent.quick, every=extent.all, estimators=extent.estimators,
        extended=extent.extended,
    )  # fmt: skip
