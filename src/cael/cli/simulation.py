"""Commands that need no data: demo, simulate, estimators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

from cael.cli.options import Flag, Number, Printed, Whole
from cael.cli.output import console, printed, show

if TYPE_CHECKING:
    from cael.worlds import PaperWorld


@Parameter(name="*")
@dataclass(frozen=True)
class Simulation:
    """The paper's synthetic world and a log drawn from it."""

    rows: Whole = 1000
    "Rows of the log."
    actions: Whole = 500
    "Number of actions."
    context_dim: Whole = 5
    "Dimension of the contexts."
    noise: Number = 1.0
    "Standard deviation of the reward."
    gamma: Number = 0.0
    "The logging policy is the softmax of gamma times the expected reward; 0 is uniform."
    epsilon: Number = 0.2
    "The target is epsilon-greedy on the expected reward."
    seed: Whole = 0
    "Seed of the log."

    def world(self) -> PaperWorld:
        from cael.errors import InputError, positive_int
        from cael.log.budget import free, shown
        from cael.worlds import PaperWorld

        world = PaperWorld(
            n_actions=self.actions, context_dim=self.context_dim, reward_std=self.noise, gamma=self.gamma,
            epsilon=self.epsilon,
        )  # fmt: skip
        positive_int("n", self.rows, least=2)
        positive_int("seed", self.seed, least=0)
        need = 8 * (self.rows * (self.context_dim + 8) + self.actions * self.context_dim)
        if need > free():
            raise InputError(f"such a log would take {shown(need)}, and {shown(free())} are free. Simulate fewer rows.")
        return world


INTRODUCTION = """\
A simulation: the logging policy took {rows:,} decisions among {actions:,} actions, and its
log has the reward of each. What would a new policy have earned?
"""
COLUMNS = """
The table: each row estimates the value of the new policy per decision in its
own way; LoggedMean is the logging policy. error: the standard error. eff. n:
the effective sample size, in rows.\
"""


def demo(simulation: Simulation | None = None, *, learn: bool = True, format: Printed = "table") -> None:
    """Simulate a log from the paper's world, evaluate its target policy, and show the truth.

    Parameters
    ----------
    learn
        Show Auto, which trains networks (CAEL), first; that takes some seconds. --no-learn leaves it out.
    """
    from cael import evaluate

    simulation = simulation or Simulation()
    world = simulation.world()
    log = world.sample(simulation.rows, simulation.seed)
    if format == "table":
        printed(lambda: print(INTRODUCTION.format(rows=len(log), actions=log.n_actions)))
    result = evaluate(log, world.target, learn=None if learn else False)
    truth = world.value(world.target)
    best = min(result, key=lambda each: abs(each.value - truth))
    show(
        result,
        format,
        kind="evaluation",
        extra={"truth": truth},
        after=[
            COLUMNS,
            f"\nThe truth, which only a simulation knows, is {truth:.5g}; nearest this time: {best.estimator}.",
        ],
    )


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


def example(
    name: Literal["news", "revenue", "email", "recommender", "ads", "llm-router"] = "news",
    folder: Path = Path(),
    *,
    seed: Whole = 0,
    truth: Flag = False,
) -> None:
    """Write a small generated log into a folder, to try the commands on; each has a tutorial.

    Parameters
    ----------
    name
        Which: a news site, heavy-tailed revenue, a mailing, a recommender whose catalogue changes, ads in the format
        of Vowpal Wabbit, a router among language models.
    folder
        Where to; the current folder if not given.
    seed
        Of the rows; the news site has always the same.
    truth
        Print the true values of its policies instead, which only a generated log has.
    """
    from cael.datasets import examples

    if truth:
        print("\n".join(f"{spec}: {value:.6g}" for spec, value in examples.truth(name, seed).items()))
        return
    for path in examples.make(name, folder, seed):
        print(f"wrote {path}")


def schema(document: Literal["evaluation", "comparison", "audit", "plan", "learned", "watch"] = "evaluation") -> None:
    """Print the JSON Schema of what --format json prints.

    Parameters
    ----------
    document
        Of evaluate (and demo), compare, audit, plan or learn.
    """
    import json

    from cael.cli.schema import schema_of

    print(json.dumps(schema_of(document), indent=2))


def estimators() -> None:
    """List the estimators, what each needs, and what it computes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from cael.results.evaluate import panel

    table = Table(box=SIMPLE_HEAD)
    for column in ("estimator", "needs", "what it is"):
        table.add_column(column, overflow="fold")
    for estimator in (*panel("learned"), *panel("all")):
        doc = (type(estimator).__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
        table.add_row(type(estimator).__name__, ", ".join(estimator.needs), doc)
    printed(lambda: console().print(table))
