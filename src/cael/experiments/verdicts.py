"""How often the verdict says "ok" while the truth lies outside the interval, on sound logs and on broken ones.

    python -m cael.experiments.verdicts run  --out docs/results/verdicts.json --trials 60      (make verdicts)
    python -m cael.experiments.verdicts page --out docs/results

Trial t of a world is the log of seed 3000 + t, broken with the random numbers of that seed; the thresholds were set
while looking at seeds below 3000. Every evaluation is that of `cael.evaluate(learn=False)`; the
interval is the 95% interval of its headline estimate.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

import cael
from cael._types import Floats
from cael.errors import CaelError
from cael.log import LoggedData
from cael.policy import Policy, probabilities
from cael.worlds import PaperWorld, suite

LEVELS = ("ok", "caution", "refuse")
FIRST = 3000
DRIFT = 0.5
"""Change of the reward over the whole log, in standard deviations of the reward."""


@final
@dataclass(frozen=True)
class Cell:
    """One world under one condition: how many of `trials` logs got each verdict, and for how many of each the truth
    lay outside the interval. errors: logs on which evaluate raised an error (a refusal that cannot be overlooked)."""

    world: str
    condition: str
    rows: int
    trials: int
    ok: int
    caution: int
    refuse: int
    errors: int
    ok_missed: int
    caution_missed: int
    refuse_missed: int


@final
@dataclass(frozen=True)
class ClickWorld:
    """Ten banners, two features of a visitor, clicks of a few percent; logging softmax, target a sharper softmax."""

    def q(self, contexts: Floats) -> Floats:
        angle = np.arange(10) * 2 * np.pi / 10
        taste = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return 0.08 / (1 + np.exp(1.0 - contexts @ taste.T))

    def scores(self, contexts: Floats) -> Floats:
        return 12 * self.q(contexts)

    @property
    def target(self) -> Policy:
        return cael.Softmax(self.scores, temperature=0.2)

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.normal(size=(n, 2))

    def sample(self, n: int, seed: int) -> LoggedData:
        from cael.worlds.base import draw_actions

        rng = np.random.default_rng([seed, 0xC11C])
        x = self.contexts(n, rng)
        p = np.exp(self.scores(x))
        p /= p.sum(axis=1, keepdims=True)
        a = draw_actions(p, rng)
        r = (rng.random(n) < self.q(x)[np.arange(n), a]).astype(float)
        return LoggedData(x, a, r, logging=cael.Softmax(self.scores), n_actions=10)

    def value(self, policy: Policy) -> float:
        """By Gauss-Hermite quadrature over the two features."""
        node, weight = np.polynomial.hermite_e.hermegauss(60)
        x = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
        w = np.outer(weight, weight).ravel() / (2 * np.pi)
        log = LoggedData(x, np.zeros(len(x), int), np.zeros(len(x)), n_actions=10)
        total, at = 0.0, 0
        for batch in log.batches(width=10):
            p = probabilities(policy, batch)
            total += float(w[at : at + len(batch)] @ (p * self.q(batch.contexts)).sum(axis=1))
            at += len(batch)
        return total


def worlds() -> dict[str, tuple[Any, int]]:
    """The suite of worlds, and four with the overlap that a careful experimenter would have."""
    return {
        **suite(),
        "paper, 10 actions": (PaperWorld(n_actions=10, gamma=0.3), 2000),
        "paper, 50 actions": (PaperWorld(n_actions=50, gamma=0.3), 5000),
        "clicks": (ClickWorld(), 10_000),
        "uniform logging": (PaperWorld(n_actions=10), 2000),
    }


def table_of(log: LoggedData) -> Floats:
    """All probabilities of the logging policy, (n, k)."""
    assert log.logging is not None
    return np.concatenate([probabilities(log.logging, batch) for batch in log.batches(width=log.n_actions)])


def rebuilt(
    log: LoggedData,
    rows: Any,
    *,
    actions: Any = None,
    rewards: Any = None,
    propensities: Any = None,
    logging: Any = None,
) -> LoggedData:
    """The log of these rows with some columns exchanged, as somebody else would have written it down."""
    return LoggedData(
        log.contexts[rows],
        log.actions[rows] if actions is None else actions,
        log.rewards[rows] if rewards is None else rewards,
        propensities,
        logging=logging,
        n_actions=log.n_actions,
        action_features=log.action_features,
    )


def sound(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return log, 0.0


def sound_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return rebuilt(log, slice(None), propensities=log.propensities), 0.0


def tilted(log: LoggedData, rng: np.random.Generator) -> Floats:
    """The logging policy's table as of another version of it: every action's odds times exp(0.5 N(0, 1))."""
    p = table_of(log) * np.exp(0.5 * rng.standard_normal(log.n_actions))
    return p / p.sum(axis=1, keepdims=True)


def wrong_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return rebuilt(log, slice(None), logging=tilted(log, rng)), 0.0


def wrong_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    wrong = tilted(log, rng)[np.arange(len(log)), log.actions]
    return rebuilt(log, slice(None), propensities=wrong), 0.0


def noisy_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    assert log.propensities is not None
    noise = np.exp(0.5 * rng.standard_normal(len(log)))
    return rebuilt(log, slice(None), propensities=np.minimum(1.0, log.propensities * noise)), 0.0


def shuffled(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    order = rng.permutation(len(log))
    return rebuilt(log, slice(None), actions=log.actions[order], propensities=log.propensities), 0.0


def shuffled_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    order = rng.permutation(len(log))
    return rebuilt(log, slice(None), actions=log.actions[order], logging=table_of(log)), 0.0


def lost(log: LoggedData, rng: np.random.Generator) -> Any:
    """The rows that are left when those of a fifth of the actions are lost."""
    gone = rng.permutation(log.n_actions)[: max(1, log.n_actions // 5)]
    return np.flatnonzero(~np.isin(log.actions, gone))


def missing_actions(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    rows = lost(log, rng)
    assert log.propensities is not None
    return rebuilt(log, rows, propensities=log.propensities[rows]), 0.0


def missing_actions_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    rows = lost(log, rng)
    return rebuilt(log, rows, logging=table_of(log)[rows]), 0.0


def drifted(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    """Rewards that rise over the rows; the truth that counts is that of the last one."""
    rise = DRIFT * float(log.rewards.std())
    r = log.rewards + rise * np.linspace(0, 1, len(log))
    return rebuilt(log, slice(None), rewards=r, logging=log.logging), rise


Condition = Callable[[LoggedData, np.random.Generator], tuple[LoggedData, float]]
CONDITIONS: dict[str, Condition] = {
    "sound, logging policy known": sound,
    "sound, propensities only": sound_propensities,
    "propensities of another version, whole policy": wrong_logging,
    "propensities of another version, logged ones only": wrong_propensities,
    "propensities with noise": noisy_propensities,
    "actions shuffled, logging policy known": shuffled_logging,
    "actions shuffled, propensities only": shuffled,
    "a fifth of the actions lost, logging policy known": missing_actions_logging,
    "a fifth of the actions lost, propensities only": missing_actions,
    "rewards that drift": drifted,
}


def verdict_on(log: LoggedData, target: Policy, truth: float) -> tuple[str, bool]:
    """The level of the verdict, or "errors", and whether the truth lies outside the interval."""
    try:
        found = cael.evaluate(log, target, learn=False)
    except CaelError:
        return "errors", False
    return found.verdict.level, truth not in found.best.interval(0.95)


def cell(name: str, world: Any, rows: int, condition: str, trials: int) -> Cell:
    """One row of the table."""
    truth = world.value(world.target)
    seen: list[tuple[str, bool]] = []
    for seed in range(FIRST, FIRST + trials):
        try:
            log, rise = CONDITIONS[condition](world.sample(rows, seed), np.random.default_rng([seed, 6]))
        except CaelError:  # the door refused the broken log
            seen.append(("errors", False))
            continue
        seen.append(verdict_on(log, world.target, truth + rise))
    count = {level: sum(each == level for each, _ in seen) for level in (*LEVELS, "errors")}
    missed = {f"{level}_missed": sum(each == (level, True) for each in seen) for level in LEVELS}
    return Cell(name, condition, rows, trials, **count, **missed)


def run(trials: int, only: Sequence[str] = ()) -> Iterator[Cell]:
    for name, (world, rows) in worlds().items():
        for condition in CONDITIONS:
            if only and name not in only:
                continue
            made = cell(name, world, rows, condition, trials)
            print(made, file=sys.stderr, flush=True)
            yield made


def share(count: int, trials: int) -> str:
    """A share with its Monte Carlo standard error, in percent; a 95% limit where it was seen never or always."""
    if trials == 0:
        return ""
    if count == 0:
        return f"0\u00a0(<\u00a0{300 / trials:.1f})"
    if count == trials:
        return f"100\u00a0(>\u00a0{100 - 300 / trials:.1f})" if trials > 3 else "100"
    p = count / trials
    return f"{100 * p:.1f}\u00a0±\u00a0{100 * math.sqrt(p * (1 - p) / trials):.1f}"


def added(cells: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The sums of the counts of several cells."""
    names = ("trials", *LEVELS, "errors", *(f"{level}_missed" for level in LEVELS))
    listed = list(cells)
    return {name: sum(each[name] for each in listed) for name in names}


def line(label: str, total: dict[str, int]) -> str:
    n = total["trials"]
    missed = sum(total[f"{level}_missed"] for level in LEVELS)
    # An error is a refusal that cannot be overlooked.
    refused = total["refuse"] + total["errors"]
    cells = [label, *(share(each, n) for each in (total["ok"], total["caution"], refused, missed))]
    cells += [f"**{share(total['ok_missed'], n)}**", share(total["ok_missed"], total["ok"])]
    return "| " + " | ".join(cells) + " |"


def markdown(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each condition, over all worlds."""
    heads = ["log", *LEVELS, "truth outside", "false ok", "outside, given ok"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    for condition in CONDITIONS:
        same = [each for each in cells if each["condition"] == condition]
        if same:
            lines.append(line(condition, added(same)))
    return "\n".join(lines) + "\n"


def markdown_worlds(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each world: its sound logs, and its broken ones."""
    heads = ["world", "rows", "sound: ok", "outside, given ok", "broken: ok", "truth outside", "false ok"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    for world in dict.fromkeys(each["world"] for each in cells):
        own = [each for each in cells if each["world"] == world]
        sound = added(each for each in own if each["condition"] == "sound, logging policy known")
        broken = added(each for each in own if not each["condition"].startswith("sound"))
        missed = sum(broken[f"{level}_missed"] for level in LEVELS)
        row = [
            world, f"{own[0]['rows']:,}", share(sound["ok"], sound["trials"]), share(sound["ok_missed"], sound["ok"]),
            share(broken["ok"], broken["trials"]), share(missed, broken["trials"]),
            f"**{share(broken['ok_missed'], broken['trials'])}**",
        ]  # fmt: skip
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def page(folder: Path) -> None:
    """Render the results in `folder` as the tables that the documentation includes."""
    cells = json.loads((folder / "verdicts.json").read_text())
    (folder / "verdicts.inc").write_text(markdown(cells))
    (folder / "verdicts_worlds.inc").write_text(markdown_worlds(cells))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=(), help="names of worlds; all by default")
    told = parser.parse_args(arguments)
    if told.what == "page":
        page(told.out)
        return
    told.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for each in run(
        told.trials, told.only
    ):  # written after each cell, so that a run that is stopped leaves what it had
        rows.append(asdict(each))
        told.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
