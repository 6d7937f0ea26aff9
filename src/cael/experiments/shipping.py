"""How often `learn` ships a policy, how often that is worse than the old one, and what share of the gain it gets.

    python -m cael.experiments.shipping run  --out results/shipping.jsonl --logs 30 --jobs 2 [--seconds 500]
    python -m cael.experiments.shipping page --rows results/shipping.jsonl --out docs/results/shipping.inc

Log t of a world is that of seed --seeds + t; what is tuned is tuned on seeds below 7000. The true value of the learned
policy, of the old one and of the best one come from the world. Worlds whose name begins with "nothing" have no better
policy: there every "ship" is an error. Random worlds are those of --seeds + t, two logs each, and one log of the same
world with rewards that no action changes ("nothing to learn, random"). A run that was stopped
goes on where it was: each log is a line of the file; --seconds ends it in good order after so many. It needs numpy,
scipy, scikit-learn and joblib alone. --worlds takes those whose names begin with one of these words.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.errors import CaelError
from cael.experiments.ledger import append, in_parallel, read_lines
from cael.learning.learner import learn
from cael.learning.plays import one_hot
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.policy import Policy
from cael.worlds import LearningWorld, MixedWorld, PaperWorld, Play, random_world, suite, wide

FIRST, RANDOM, NOTHING = 7000, "random", "nothing to learn, random"
TOLERANCE = 1e-9
"""Of the value of the old policy: a policy that is worse by less is not worse."""


@final
@dataclass(frozen=True)
class Users:
    """A world whose users come `each` times: with the same context, the same action, and rewards that are alike."""

    base: MixedWorld
    each: int = 5

    @property
    def logging(self) -> Policy:
        return self.base.logging

    def _means(self, members: Batch) -> Floats:
        return self.base._means(members)

    def value(self, policy: Policy) -> float:
        return self.base.value(policy)

    def sample(self, n: int, seed: int) -> LoggedData:
        users = self.base.sample(max(2, n // self.each), seed)
        user = np.repeat(np.arange(len(users)), self.each)
        rng = np.random.default_rng([seed, 0x05E2])
        again = rng.random(len(user)) < AGAIN
        rewards = np.where(again, users.rewards[user], rng.choice(users.rewards, len(user)))
        return LoggedData(
            users.contexts[user], users.actions[user], rewards, logging=self.logging, n_actions=users.n_actions,
            clusters=user,
        )  # fmt: skip


AGAIN = 0.7
"""How often a user's reward is the one of before."""


@cache
def listed() -> dict[str, tuple[Any, int]]:
    """Name -> (world, rows)."""
    uniform = Play("uniform")
    papers = {f"paper, k = {k}": (PaperWorld(n_actions=k), 1000) for k in (100, 500, 1500)}
    nothing: dict[str, tuple[Any, int]] = {
        f"nothing to learn, {noise}, k = {k}": (
            MixedWorld("none", noise, uniform if k == 10 else Play("popular", 0.8), uniform, n_actions=k, rate=0.05,
                       context_share=share, reward_std=1.0, seed=3), 2000)
        for noise, k, share in (("normal", 10, 0.5), ("normal", 200, 0.0), ("clicks", 10, 0.0), ("heavy", 50, 0.5),
                                ("revenue", 20, 0.3))
    }  # fmt: skip
    nothing |= {
        "nothing to learn, rare clicks, k = 100": (
            MixedWorld("none", "clicks", uniform, uniform, n_actions=100, rate=0.005, effect=0.0, seed=3), 3000),
        "nothing to learn, clicks, 300 rows": (
            MixedWorld("none", "clicks", Play("popular", 1.0), uniform, n_actions=10, rate=0.05, seed=3), 300),
        "nothing to learn, heavy, 200 rows": (
            MixedWorld("none", "heavy", Play("popular", 1.2), uniform, n_actions=20, reward_std=1.0, seed=3), 200),
        "nothing to learn, revenue, one arm": (
            MixedWorld("none", "revenue", Play("arm", 0.02), uniform, n_actions=30, reward_std=1.5, seed=3), 2000),
        "nothing to learn, users": (
            Users(MixedWorld("none", "normal", uniform, uniform, n_actions=10, context_share=0.5, seed=3)), 2000),
        "nothing to learn, 60 users": (
            Users(MixedWorld("none", "clicks", Play("popular", 0.8), uniform, n_actions=8, rate=0.2, seed=3), 10), 600),
    }  # fmt: skip
    others = {**suite(), **wide()}
    known = {
        name: pair for name, pair in others.items()
        if name not in ("paper", "A/B test, 100,000 rows", "near the logging policy")
        and not isinstance(pair[0], LearningWorld)
    }  # fmt: skip
    return {**papers, **nothing, **known}


@final
@dataclass(frozen=True, eq=False)
class Best(Policy):
    """The best action of each context, by the world itself."""

    world: Any

    def probabilities(self, batch: Batch) -> Floats:
        return one_hot(means_of(self.world)(batch).argmax(axis=1), batch.n_actions)


def means_of(world: Any) -> Any:
    """The function of expected rewards of all actions; a world with actions that are never logged has another in it."""
    return getattr(world, "_whole", world)._means


@cache
def world_of(name: str) -> tuple[Any, int]:
    if not name.startswith((f"{RANDOM} ", f"{NOTHING} ")):
        return listed()[name]
    world, rows = random_world(int(name.split()[-1]))
    return (world if name.startswith(RANDOM) else replace(world, shape="none")), rows


@cache
def ends_of(name: str) -> tuple[float, float]:
    """The true values of the old policy and of the best one."""
    world, _ = world_of(name)
    return float(world.value(world.sample(2, 0).logging)), float(world.value(Best(world)))


def row_of(name: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """One log: what was learned of it, and the truth."""
    warnings.simplefilter("ignore")
    world, n = world_of(name)
    old, best = ends_of(name)
    row = {"world": name, "seed": seed, "old": old, "best": best}
    start = time.process_time()
    try:
        learned = learn(world.sample(n, seed), **options)
    except CaelError as error:
        return {**row, "error": str(error)[:300]}
    seconds = time.process_time() - start
    return {
        **row, "decision": learned.decision, "value": float(world.value(learned.policy)), "lift": learned.lift.value,
        "bound": learned.bound, "level": learned.verdict.level, "candidate": learned.chosen.candidate,
        "play": learned.chosen.play, "seconds": round(seconds, 2),
    }  # fmt: skip


def tasks(worlds: Sequence[str], logs: int, first: int, randoms: int) -> list[tuple[str, int]]:
    """(world, seed) of all logs, the first ones of every world first."""
    names = [name for name in listed() if not worlds or name.startswith(tuple(worlds))]
    fixed = [(name, first + t) for t in range(logs) for name in names]
    kinds = [kind for kind in (RANDOM, RANDOM, NOTHING) if not worlds or kind.startswith(tuple(worlds))]
    drawn = [(f"{kind} {first + t}", first + log) for t in range(randoms) for log, kind in enumerate(kinds)]
    return fixed + drawn


def run(path: Path, wanted: list[tuple[str, int]], jobs: int, seconds: float | None, options: dict[str, Any]) -> int:
    """Run what is not there yet; the number of logs that are left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = {(row["world"], row["seed"]) for row in read_lines(path)}
    pending = [task for task in wanted if task not in there]
    start, size, at = time.monotonic(), max(4, 4 * jobs), 0
    while at < len(pending) and (seconds is None or time.monotonic() - start < seconds):
        calls = [(name, seed, options) for name, seed in pending[at : at + size]]
        append(path, list(in_parallel(row_of, calls, jobs)))
        at += len(calls)
        print(f"{at} of {len(pending)} logs, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return len(pending) - at


# The page


def played(row: dict[str, Any]) -> float:
    """The value of what is played after the advice."""
    return float(row["value"] if row["decision"] == "ship" else row["old"])


def hopeless(row: dict[str, Any]) -> bool:
    """Whether no policy is better than the old one."""
    return row["best"] - row["old"] <= TOLERANCE * (1 + abs(row["old"]))


def harmful(row: dict[str, Any]) -> bool:
    """Whether a policy is shipped that is worse than the old one, or, where nothing is better, any that is shipped."""
    worse = row["value"] < row["old"] - TOLERANCE * (1 + abs(row["old"]))
    return row["decision"] == "ship" and (worse or hopeless(row))


def gain(row: dict[str, Any]) -> float:
    """The share of the possible gain that is got."""
    return 0.0 if hopeless(row) else (played(row) - row["old"]) / (row["best"] - row["old"])


def share(values: Sequence[float]) -> str:
    """A share in percent with its standard error; of none or all, that of one half more."""
    n, count = len(values), sum(values)
    p = (count + 0.5) / (n + 1) if count in (0, n) else count / n
    return f"{count / n:.0%} ± {np.sqrt(p * (1 - p) / n):.0%}"


def measured(values: Sequence[float], digits: int = 3) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{mean(values):.{digits}f} ± {error:.{digits}f}"


def line(name: str, rows: list[dict[str, Any]]) -> str:
    """One world, or all random ones."""
    shipped = [float(row["decision"] == "ship") for row in rows]
    old, best = mean(row["old"] for row in rows), mean(row["best"] for row in rows)
    nothing = all(map(hopeless, rows))
    cells = [
        name, str(len(rows)), f"{old:.4g}", f"{best:.4g}", measured([played(row) for row in rows]), share(shipped),
        share([float(harmful(row)) for row in rows]), "" if nothing else f"{mean(map(gain, rows)):.0%}",
        f"{mean(row['seconds'] for row in rows):.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def page(rows: list[dict[str, Any]]) -> str:
    """The table, worlds in their order, then the random ones together."""
    rows = list({(row["world"], row["seed"]): row for row in rows}.values())  # two runs may have written one file
    sound = [row for row in rows if "error" not in row]
    heads = ["world", "logs", "old", "best", "value played", "ships", "ships harm", "gain", "seconds"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name in listed():
        own = [row for row in sound if row["world"] == name]
        lines += [line(name, own)] if own else []
    for kind, words in ((NOTHING, NOTHING), (RANDOM, "random worlds")):
        drawn = [row for row in sound if row["world"].startswith(f"{kind} ")]
        lines += [line(f"{words} ({len({row['world'] for row in drawn})})", drawn)] if drawn else []
    for words, none in (("all worlds with nothing to learn", True), ("all worlds where something is better", False)):
        own = [row for row in sound if hopeless(row) == none]
        lines += [line(words, own)] if own else []
    lines += [line("all worlds", sound)] if sound else []
    failed = len(rows) - len(sound)
    return "\n".join([*lines, *([f"\n{failed} logs ended in an error."] if failed else [])]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cael.experiments.shipping", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--logs", type=int, default=30)
    runs.add_argument(
        "--random", type=int, default=60, help="random worlds, two logs each, and one with nothing to learn"
    )
    runs.add_argument("--seeds", type=int, default=FIRST)
    runs.add_argument("--jobs", type=int, default=1)
    runs.add_argument("--seconds", type=float)
    runs.add_argument("--worlds", nargs="*", default=[])
    runs.add_argument("--certify", type=float)
    pages = commands.add_parser("page")
    pages.add_argument("--rows", type=Path, required=True)
    pages.add_argument("--out", type=Path)
    settings = parser.parse_args(arguments)
    if settings.command == "run":
        options = {} if settings.certify is None else {"certify": settings.certify}
        wanted = tasks(settings.worlds, settings.logs, settings.seeds, settings.random)
        left = run(settings.out, wanted, settings.jobs, settings.seconds, options)
        print(f"{left} logs are left" if left else "done")
        return
    text = page(read_lines(settings.rows))
    print(text) if settings.out is None else settings.out.write_text(text, "utf-8")


if __name__ == "__main__":
    from cael.experiments import shipping  # by its name, which worker processes find

    shipping.main()
