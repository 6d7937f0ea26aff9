"""The command `cael reproduce`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def reproduce(
    *names: str,
    out: Path = Path("results"),
    runs: int | None = None,
    jobs: int | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    all: Annotated[bool, Parameter(negative="")] = False,
    device: Literal["cpu", "cuda"] = "cpu",
    dask: str | None = None,
) -> None:
    """Rerun an experiment of the paper: rows, table, figures, and a verdict on every claim.

    What was interrupted goes on where it stopped, when it is called again with the same --out.

    Parameters
    ----------
    names
        Experiments: bias-variance-mse, samples, actions, logging, epsilon, noise, open-bandit, open-bandit-published,
        open-bandit-known, readings, selection, worlds; or the path of a TOML file of your own.
    out
        Folder of the results; each experiment has its own below it.
    runs
        Runs per problem, in place of the experiment's own number.
    jobs
        Processes on this machine (default: one per core). Results do not depend on it.
    quick
        Few runs and a short training, to see that all works. Without a name: every experiment.
    all
        Every experiment, in full: hours on a CPU.
    device
        Where networks are trained; on cuda, all runs of a problem at once.
    dask
        Address of a Dask scheduler that runs the trials.
    """
    from cael.experiments.run import Where, command

    command(names, out, Where(jobs or os.cpu_count() or 1, dask, device), runs=runs, quick=quick, every=all)
