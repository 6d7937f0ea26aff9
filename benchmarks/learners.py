"""Learned policies side by side with obp's learners, on the same logs.

    python benchmarks/learners.py --logs 3 --worlds paper-100 linear-20 [--cache FOLDER]

Every log is written to an .npz file with the contexts of a test population and their expected rewards. obp's
IPWLearner (logistic regression, rewards as they are and centred), its QLearner (ridge on context and action) and
NNPolicyLearner (doubly robust objective) learn from it in obp's own environment; cael.learn in this one. The value of a
policy is its exact mean over the test population. Peers always ship: nothing in them says when to keep the old policy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import mean, stdev

import numpy as np

import cael
import peer_env
from cael.policies.policy import probabilities
from cael.worlds import MixedWorld, PaperWorld, Play
from cael.worlds.world import unlogged

HERE = Path(__file__).resolve().parent
TEST = 2000
WORLDS = {
    "paper-100": (PaperWorld(n_actions=100), 1000),
    "paper-500": (PaperWorld(n_actions=500), 1000),
    "linear-20": (MixedWorld("linear", "normal", Play("softmax", 0.5, 0.5), n_actions=20, seed=6), 2000),
    "tree-10-clicks": (MixedWorld("tree", "clicks", Play("uniform"), n_actions=10, rate=0.2, seed=6), 4000),
    "nothing-20": (MixedWorld("none", "normal", Play("uniform"), n_actions=20, context_share=0.5, seed=6), 2000),
}


def written(name: str, seed: int, path: Path) -> None:
    """A log, and a test population with its expected rewards."""
    world, n = WORLDS[name]
    log, test = world.sample(n, seed), world.sample(TEST, 10**6)
    batch = unlogged(test.contexts, test.n_actions, test.action_features)
    old = probabilities(world.logging, batch)
    np.savez(
        path, contexts=log.contexts, actions=log.actions, rewards=log.rewards, propensities=log.propensities,
        test=test.contexts, q=world.q(test.contexts), old=old, n_actions=log.n_actions,
    )  # fmt: skip


def by_cael(name: str, seed: int, path: Path) -> list[tuple[str, float, float]]:
    """(learner, value, seconds) of cael: what it learned, and what is played after its advice."""
    world, n = WORLDS[name]
    data = np.load(path)
    start = time.process_time()
    learned = cael.learn(world.sample(n, seed))
    seconds = time.process_time() - start
    batch = unlogged(data["test"], int(data["n_actions"]))
    value = float((probabilities(learned.policy, batch) * data["q"]).sum(axis=1).mean())
    old = float((data["old"] * data["q"]).sum(axis=1).mean())
    return [("cael.learn", value if learned.ships else old, seconds), ("old policy", old, 0.0)]


def by_obp(python: Path, path: Path) -> list[tuple[str, float, float]]:
    done = subprocess.run([python, HERE / "learners_obp.py", path], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"obp failed:\n{done.stderr[-2000:]}")
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=7000)
    parser.add_argument("--worlds", nargs="*", choices=tuple(WORLDS), default=tuple(WORLDS))
    parser.add_argument("--cache", type=Path, default=HERE / ".cache")
    given = parser.parse_args()
    python = peer_env.python_of(given.cache)
    print("| world | learner | value | error | worse than old | seconds |\n|---|---|---|---|---|---|")
    for name in given.worlds:
        rows: dict[str, list[tuple[float, float]]] = {}
        for seed in range(given.seeds, given.seeds + given.logs):
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                path = Path(folder) / "log.npz"
                written(name, seed, path)
                for learner, value, seconds in [*by_cael(name, seed, path), *by_obp(python, path)]:
                    rows.setdefault(learner, []).append((value, seconds))
        old = mean(value for value, _ in rows["old policy"])
        for learner, pairs in rows.items():
            values = [value for value, _ in pairs]
            error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            worse = sum(value < old - 1e-9 for value in values)
            print(
                f"| {name} | {learner} | {mean(values):.4f} | {error:.4f} | {worse} of {len(values)} | "
                f"{mean(seconds for _, seconds in pairs):.1f} |"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
