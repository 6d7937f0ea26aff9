"""Learned policies side by side with those of obp, EconML and Vowpal Wabbit, on the same logs.

    python benchmarks/learners.py run --rows learners.jsonl --logs 10 [--cells "paper, k = 100" digits] [--peers obp vw]
    python benchmarks/learners.py page --rows learners.jsonl

Each peer runs in an environment of its own, made once (peer_env.py, requirements-*.txt), with the same contexts,
propensities and, where it takes them, features of actions; the scripts learners_*.py say how each is set. Every log is
an .npz file with the contexts of 2,000 test rows and their expected rewards, by which all policies are valued; in the
trials the value is that among the half of the patients that took no part. Peers always ship: nothing in them says when
to keep the old policy. A run that was stopped goes on where it was. Seeds below 8000 are for tuning.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import cael
import peer_env
from cael.datasets import actg175
from cael.experiments.ledger import append, read_lines
from cael.experiments.shipping import listed, means_of, world_of
from cael.policies.policy import Uniform, probabilities

HERE = Path(__file__).resolve().parent
TEST, SECONDS = 2000, 600
TRIAL = "ACTG 175"
CELLS = (
    "paper, k = 100", "paper, k = 500", "embedding-linear", "independent", "digits", "independent linear",
    "personalised", "personalised, tree", "A/B test", "heavy tails", "action features", TRIAL,
)  # fmt: skip
PEERS = ("obp", "econml", "vw")
OURS = ("old policy", "cael.learn", "its policy, shipped or not")


def world_log(name: str, seed: int) -> tuple[cael.LoggedData, dict[str, Any]]:
    """A log, and test rows with their expected rewards and the old policy there."""
    world, n = world_of(name)
    log, test = world.sample(n, seed), world.sample(TEST, 10**6).whole
    if hasattr(world, "_population"):  # members of a fixed population: the first of them, which are in no order
        test = world._population.batch(np.arange(min(TEST, len(world._population.contexts))))
    return log, {"test": test, "q": np.asarray(means_of(world)(test)), "old": probabilities(log.logging, test)}


def trial_log(seed: int) -> tuple[cael.LoggedData, dict[str, Any]]:
    """Half of the patients as a log; in the place of expected rewards, an unbiased estimate from the other half."""
    trial = actg175()
    inside = np.random.default_rng([seed, 0xAC7]).permutation(len(trial)) < len(trial) // 2
    log, others = trial.take(inside).log(), trial.take(~inside)
    middle = others.outcomes.mean()
    q = np.full((len(others), log.n_actions), middle)
    q[np.arange(len(others)), others.arms] += (others.outcomes - middle) / others.propensities
    return log, {"test": others.log().whole, "q": q, "old": others.probabilities}


def logged(name: str, seed: int) -> tuple[cael.LoggedData, dict[str, Any]]:
    return trial_log(seed) if name == TRIAL else world_log(name, seed)


def write(log: cael.LoggedData, truth: dict[str, Any], path: Path) -> None:
    """For the peers."""
    features = np.empty((log.n_actions, 0)) if log.action_features is None else log.action_features
    np.savez(
        path, contexts=log.contexts, actions=log.actions, rewards=log.rewards, propensities=log.propensities,
        features=features, test=truth["test"].contexts, q=truth["q"], n_actions=log.n_actions,
    )  # fmt: skip


def by_cael(log: cael.LoggedData, truth: dict[str, Any], *, function: bool) -> list[tuple[str, float, float]]:
    """(learner, value, seconds) of cael, its candidate even where it is not shipped, and the old policy. function: the
    old policy is uniform, and known as such."""
    if function:
        log = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=Uniform(log.n_actions))
    start = time.process_time()
    learned = cael.learn(log)
    seconds = time.process_time() - start
    value = value_of(probabilities(learned.policy, truth["test"]), truth)
    old = value_of(truth["old"], truth)
    played = value if learned.ships else old
    return list(zip(OURS, (old, played, value), (0.0, seconds, seconds), strict=True))


def value_of(p: Any, truth: dict[str, Any]) -> float:
    return float((p * truth["q"]).sum(axis=1).mean())


def by_peer(python: Path, peer: str, path: Path) -> list[tuple[str, float | None, Any]]:
    """What a peer's script prints; of one that takes too long, its name."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            [python, HERE / f"learners_{peer}.py", path], capture_output=True, text=True, timeout=SECONDS,
            env={**os.environ, **threads},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [(peer, None, f"more than {SECONDS} s")]
    if done.returncode:
        return [(peer, None, done.stderr[-200:])]
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def run(given: argparse.Namespace) -> None:
    there = {(row["cell"], row["seed"], row["by"]) for row in read_lines(given.rows)}
    for seed in range(given.seeds, given.seeds + given.logs):
        for name in given.cells:
            wanted = [by for by in ("cael", *given.peers) if (name, seed, by) not in there]
            if wanted:
                append(given.rows, rows_of(name, seed, wanted, given.cache))
                print(f"{name}, log {seed}", file=sys.stderr)


def rows_of(name: str, seed: int, wanted: list[str], cache: Path) -> list[dict[str, Any]]:
    """All learners on one log."""
    warnings.simplefilter("ignore")
    log, truth = logged(name, seed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        write(log, truth, path)
        for by in wanted:
            if by == "cael":
                found: Any = by_cael(log, truth, function=name == TRIAL)
            else:
                found = by_peer(peer_env.python_of(cache, by), by, path)
            rows += [
                {"cell": name, "seed": seed, "by": by, "learner": learner, "value": value, "seconds": seconds,
                 "best": None if name == TRIAL else float(truth["q"].max(axis=1).mean())}
                for learner, value, seconds in found
            ]  # fmt: skip
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """Cells by learners: mean value with its Monte Carlo error, and how often cael is best or within 1% of it."""
    cells = [name for name in (*CELLS, *listed()) if any(row["cell"] == name for row in rows)]
    cells = list(dict.fromkeys(cells))
    named = dict.fromkeys(row["learner"] for row in rows if row["value"] is not None)
    learners = [*(name for name in OURS if name in named), *(name for name in named if name not in OURS)]
    lines = [f"| learner | {' | '.join(cells)} |", f"|---|{'---|' * len(cells)}"]
    for learner in learners:
        lines.append(f"| {learner} | {' | '.join(shown(rows, name, learner) for name in cells)} |")
    lines.append(f"| logs | {' | '.join(str(logs_of(rows, name)) for name in cells)} |")
    won = [name for name in cells if close(rows, name, learners)]
    lines += ["", f"cael.learn is best, or within 1% of the best gain, in {len(won)} of {len(cells)} cells."]
    failed = sorted({(row["cell"], row["learner"], row["seconds"]) for row in rows if row["value"] is None})
    lines += ["", *(f"- {cell}: {learner} failed ({why})." for cell, learner, why in failed)] if failed else []
    return "\n".join(lines) + "\n"


def values(rows: list[dict[str, Any]], cell: str, learner: str) -> list[float]:
    return [
        row["value"] for row in rows if (row["cell"], row["learner"]) == (cell, learner) and row["value"] is not None
    ]


def logs_of(rows: list[dict[str, Any]], cell: str) -> int:
    return len({row["seed"] for row in rows if row["cell"] == cell})


def shown(rows: list[dict[str, Any]], cell: str, learner: str) -> str:
    own = values(rows, cell, learner)
    if not own:
        return ""
    error = f" ± {stdev(own) / len(own) ** 0.5:.3f}" if len(own) > 1 else ""
    return f"{mean(own):.3f}{error}"


def close(rows: list[dict[str, Any]], cell: str, learners: list[str]) -> bool:
    """Whether cael's gain over the old policy is at least 99% of the best peer's."""
    old, own = mean(values(rows, cell, "old policy")), mean(values(rows, cell, "cael.learn"))
    peers = [name for name in learners if name not in OURS]
    best = max((mean(values(rows, cell, name)) for name in peers if values(rows, cell, name)), default=old)
    return own - old >= 0.99 * (best - old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--logs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=8000)
    parser.add_argument("--cells", nargs="*", default=CELLS)
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--cache", type=Path, default=HERE / ".cache")
    parser.add_argument("--out", type=Path, help="where the page goes; else it is printed")
    given = parser.parse_args()
    if given.what == "run":
        run(given)
    else:
        text = page(read_lines(given.rows))
        print(text, end="") if given.out is None else given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
