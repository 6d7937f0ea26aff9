"""The CAEL-MIPS paper in one place, as `cael.paper`: its estimators and problem, the theory, the experiments.

The estimators need `pip install 'cael[torch]'`, figures `pip install 'cael[plots]'`.

>>> import cael
>>> [claim.where for claim in cael.paper.claims()][:2]
['abstract', 'abstract, published target']
>>> cael.paper.World().n_actions
500
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cael import theory as theory
from cael.embedding import AELMIPS as AELMIPS
from cael.embedding import CAELMIPS as CAELMIPS
from cael.embedding import NetworkDM as NetworkDM
from cael.embedding import NetworkOutcome as NetworkOutcome
from cael.embedding import NetworkSettings as NetworkSettings
from cael.embedding import Objective as Objective
from cael.embedding import Training as Training
from cael.embedding.settings import PRESETS as PRESETS
from cael.embedding.settings import objective as objective
from cael.experiments.claims import Claim as Claim
from cael.experiments.claims import load_claims
from cael.experiments.outcome import Outcome
from cael.experiments.spec import FIGURES as FIGURES
from cael.experiments.spec import experiments_of
from cael.worlds import PaperWorld as World

__all__ = [
    "AELMIPS", "CAELMIPS", "FIGURES", "PRESETS", "Claim", "NetworkDM", "NetworkOutcome", "NetworkSettings", "Objective",
    "Training", "World", "claims", "objective", "reproduce", "theory",
]  # fmt: skip

paper = sys.modules[__name__]
"""This module, under the name by which the package exports it."""


def claims() -> list[Claim]:
    """The paper's empirical sentences in our words, each with its rule."""
    return load_claims()


def reproduce(
    *names: str,
    out: Path | str = "results",
    estimators: Sequence[str] = ("paper",),
    runs: int | None = None,
    extended: bool = False,
    jobs: int = 1,
    device: str = "cpu",
) -> dict[str, Outcome]:
    """Rerun figures of the paper ("figure-1", ...) or experiments, as `cael reproduce` does: outcomes by experiment.

    out: folder of rows, tables and pictures; what it has is not run again. estimators: names, "paper" (its four) or
    "full". runs: logs per problem, in place of the experiment's own. extended: the other readings and more runs, too.
    """
    from cael.experiments.composite import compose
    from cael.experiments.run import Where, reproduce

    found = {}
    every = reproduce(
        experiments_of(names), Path(out), Where(jobs, None, device), runs=runs, quiet=True, estimators=estimators,
        extended=extended,
    )  # fmt: skip
    for outcome in every:
        found[outcome.table.spec.name] = outcome
    compose([name for name in names if name in FIGURES], {k: each.table for k, each in found.items()}, Path(out))
    return found
