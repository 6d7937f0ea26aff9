"""The command line: parse, call one public function, print. Exit codes: 0 fine, 1 an error, 2 wrong usage."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from cael._version import __version__

if TYPE_CHECKING:
    from cael.estimators import Estimator
    from cael.evaluation import Evaluation
    from cael.worlds import PaperWorld

Format = Literal["table", "json"]

app = App(
    name="cael",
    help="Off-policy evaluation: what would this new policy have earned, judged from the logs of the old one?",
    version=__version__,
    help_format="plaintext",
)
app.command(
    "cael.experiments.cli:reproduce",
    name="reproduce",
    help="Rerun an experiment of the paper: rows, table, figures, and a verdict on every claim.",
)


@Parameter(name="*")
@dataclass(frozen=True)
class Simulation:
    """The paper's synthetic world and a log drawn from it."""

    rows: int = 1000
    "Rows of the log."
    actions: int = 500
    "Number of actions."
    context_dim: int = 5
    "Dimension of the contexts."
    noise: float = 1.0
    "Standard deviation of the reward."
    gamma: float = 0.0
    "The logging policy is the softmax of gamma times the expected reward; 0 is uniform."
    epsilon: float = 0.2
    "The target is epsilon-greedy on the expected reward."
    seed: int = 0
    "Seed of the log."

    def world(self) -> PaperWorld:
        from cael.worlds import PaperWorld

        return PaperWorld(
            n_actions=self.actions, context_dim=self.context_dim, reward_std=self.noise, gamma=self.gamma,
            epsilon=self.epsilon,
        )  # fmt: skip


@app.command
def demo(simulation: Simulation | None = None, *, format: Format = "table") -> None:
    """Simulate a log from the paper's world, evaluate its target policy with the whole panel, and show the truth.

    Parameters
    ----------
    format
        Print a table or JSON.
    """
    from cael import evaluate
    from cael.evaluation import panel

    simulation = simulation or Simulation()
    world = simulation.world()
    log = world.sample(simulation.rows, simulation.seed)
    result = evaluate(log, world.target, panel("all"))
    truth = world.value(world.target)
    if format == "json":
        _print_json({"truth": truth, **result.to_dict()})
        return
    _print(result)
    best = min(result, key=lambda each: abs(each.value - truth))
    print(f"\nThe truth, which only a simulation knows, is {truth:.5g}; nearest this time: {best.estimator}.")


@app.command
def simulate(out: Path, simulation: Simulation | None = None) -> None:
    """Write a simulated log, with its logging and target policies, to an .npz file that `cael evaluate` reads.

    Parameters
    ----------
    out
        The file to write.
    """
    from cael.io import save_log

    simulation = simulation or Simulation()
    world = simulation.world()
    log = world.sample(simulation.rows, simulation.seed)
    save_log(out, log, target=world.target)
    print(f"wrote {log} to {out}; the target's true value is {world.value(world.target):.6g}")


@app.command(name="evaluate")
def evaluate_command(
    log: Path,
    *,
    policy: str = "target",
    estimators: Annotated[Sequence[str], Parameter(consume_multiple=True)] = (),
    level: float = 0.95,
    format: Format = "table",
) -> None:
    """What would a policy have earned on this log? The whole panel, side by side.

    Parameters
    ----------
    log
        An .npz file with arrays actions, rewards, and as known: contexts, propensities, logging, action_features,
        clusters, timestamps.
    policy
        The target's probabilities: the name of an array in the log file, or an .npy file. Shape (k,), (n, k), or (n,)
        for the probability of the logged action alone.
    estimators
        Estimators to add to the panel; "all" adds every one.
    level
        Level of the intervals.
    format
        Print a table or JSON.
    """
    from cael import evaluate
    from cael.io import load_log, load_policy

    found = evaluate(load_log(log), load_policy(policy, log), _named(estimators), level=level)
    if format == "json":
        _print_json(found.to_dict())
    else:
        _print(found)


@app.command(name="estimators")
def estimators_command() -> None:
    """List the estimators, what each needs, and what it computes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from cael.evaluation import panel

    table = Table(box=SIMPLE_HEAD)
    for column in ("estimator", "needs", "what it is"):
        table.add_column(column, overflow="fold")
    for each in panel("all"):
        doc = (type(each).__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
        table.add_row(type(each).__name__, ", ".join(each.needs), doc)
    _print(table)


def _named(names: Sequence[str]) -> list[Estimator]:
    from cael.errors import InputError
    from cael.evaluation import panel

    known = {type(each).__name__: each for each in panel("all")}
    if list(names) == ["all"]:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"unknown estimator {unknown[0]!r}; there are: {', '.join(known)}, or 'all'.")
    return [known[name] for name in names]


def _print(what: Evaluation | Any) -> None:
    from rich.console import Console

    Console().print(what)


def _print_json(data: dict[str, Any]) -> None:
    import json

    print(json.dumps(data, indent=2, allow_nan=False))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    from cael.errors import CaelError

    try:
        app(arguments, exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - what is still buffered has nowhere to go
        sys.exit(0)
    except (CaelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
