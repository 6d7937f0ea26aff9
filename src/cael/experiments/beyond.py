"""CAEL and Auto against everything, on every cell of the paper's sweeps and on worlds that were not made for them.

    python -m cael.experiments.beyond run --what cael      --out FILE [--device cuda] [--jobs 16]
    python -m cael.experiments.beyond run --what paper     --out FILE [--device cuda]
    python -m cael.experiments.beyond run --what classical --out FILE [--jobs 2] [--estimators NAME ...]
    python -m cael.experiments.beyond run --what boosted   --out FILE [--jobs 16] [--cells CELL ...]
    python -m cael.experiments.beyond page --rows FILE [FILE ...] --out docs/results

Trial t of a cell is the log of seed t, 0 to 29; the estimators were tuned on other seeds (1000 and above).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import cael
from cael.embedding.auto import Auto
from cael.embedding.cael import CAEL, estimate_from
from cael.estimate import Estimate
from cael.problem import Problem
from cael.worlds import PaperWorld, suite

TRIALS = 30
CLASSICAL = ("LoggedMean", "IPS", "SNIPS", "DM", "DR", "SNDR", "MIPS")


def cells() -> dict[str, tuple[Any, int]]:
    """Name -> (world, rows): the paper's problem and its sweeps, then the other worlds."""
    found: dict[str, tuple[Any, int]] = {"n = 1000, k = 500": (PaperWorld(), 1000)}
    found |= {f"k = {k}": (PaperWorld(n_actions=k), 1000) for k in (50, 100, 1000, 1500)}
    found |= {f"n = {n}": (PaperWorld(), n) for n in (250, 500, 2000, 4000)}
    found |= {f"gamma = {g:g}": (PaperWorld(gamma=g), 1000) for g in (-1.0, -0.5, 0.5, 1.0)}
    found |= {f"epsilon = {e:g}": (PaperWorld(epsilon=e), 1000) for e in (0.0, 0.5, 1.0)}
    found |= {f"noise = {s:g}": (PaperWorld(reward_std=s), 1000) for s in (0.5, 2.0, 4.0)}
    return found | {name: (world, n - n % 5) for name, (world, n) in suite().items() if name != "paper"}


def sweeps() -> list[str]:
    """The cells of the paper's own world."""
    return [name for name, (world, _) in cells().items() if isinstance(world, PaperWorld)]


def row(cell: str, seed: int, name: str, found: Estimate, seconds: float) -> dict[str, Any]:
    """What is kept of one estimate."""
    d, normal = found.diagnostics, found.interval()
    aware = None if d.bias_bound is None else found.interval(method="bias_aware")
    return {
        "cell": cell, "seed": seed, "estimator": name, "value": found.value, "low": normal.low, "high": normal.high,
        "aware_low": aware and aware.low, "aware_high": aware and aware.high, "mean_weight": d.mean_weight,
        "mean_weight_z": d.mean_weight_z, "seconds": seconds,
        "took": next((each.split()[2] for each in d.warnings if each.startswith("Auto took")), None),
    }  # fmt: skip


def _learned(cell: str, job: tuple[int, Problem, Any, float]) -> list[dict[str, Any]]:
    """CAEL and Auto of one log whose networks are trained."""
    import torch

    from cael.embedding.paths import weight_path

    torch.set_num_threads(1)
    seed, problem, rewards, seconds = job
    start = time.perf_counter()
    path = weight_path(problem.log, problem.policy, rewards, CAEL().bandwidths)
    found = estimate_from("CAEL", problem, path, rewards, CAEL().form, "blend")
    spent = seconds + time.perf_counter() - start
    chosen = Auto(seed=seed).among(problem, found)
    return [row(cell, seed, "CAEL", found, spent), row(cell, seed, "Auto", chosen, spent)]


def _plain(cell: str, classical: Sequence[str], job: tuple[int, Problem]) -> list[dict[str, Any]]:
    """The classical estimators of one log; none of them: the boosted one."""
    seed, problem = job
    made: dict[str, Any] = {name: getattr(cael, name)() for name in classical}
    made = made or {"BoostedDM": cael.DM(cael.Boosting())}
    found = []
    for name, estimator in made.items():
        start = time.perf_counter()
        try:
            found.append(row(cell, seed, name, estimator.solve(problem), time.perf_counter() - start))
        except cael.CaelError as error:
            found.append({"cell": cell, "seed": seed, "estimator": name, "error": str(error)})
    return found


def run(
    what: str, names: Sequence[str], trials: int, device: str, jobs: int, classical: Sequence[str] = CLASSICAL
) -> Iterator[list[dict[str, Any]]]:
    """The rows of one cell after the other."""
    for name in names:
        world, n = cells()[name]
        problems = [Problem(world.sample(n, seed), world.target) for seed in range(trials)]
        seeds = list(range(trials))
        start = time.perf_counter()
        if what in ("classical", "boosted"):
            work = list(zip(seeds, problems, strict=True))
            made = classical if what == "classical" else ()
            yield [each for some in _pool(jobs, partial(_plain, name, made), work) for each in some]
        elif what == "paper":
            rows = []
            for kind in (cael.CAELMIPS(training=cael.Training(device=device)), cael.AELMIPS(device=device)):
                start = time.perf_counter()
                size = trials if device == "cuda" else 1
                found = [each for at in range(0, trials, size)
                         for each in kind.solve_many(problems[at : at + size], seeds[at : at + size])]  # fmt: skip
                each_took = (time.perf_counter() - start) / trials
                rows += [row(name, s, type(kind).__name__, e, each_took) for s, e in zip(seeds, found, strict=True)]
            yield rows
        else:
            from cael.embedding.rewards import sparse_rewards

            size = max(1, min(trials, int(1.5e8 // (n * world.n_actions * 5)))) if device == "cuda" else 1
            logs, growth = [problem.log for problem in problems], cael.Growth(device=device)
            fitted = [
                each.cpu()
                for at in range(0, trials, size)
                for each in sparse_rewards(logs[at : at + size], growth, 5, seeds[at : at + size])
            ]
            spent = (time.perf_counter() - start) / trials
            trained = list(zip(seeds, problems, fitted, [spent] * trials, strict=True))
            yield [each for some in _pool(jobs, partial(_learned, name), trained) for each in some]
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


def _pool(jobs: int, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    if jobs == 1:
        return [work(each) for each in items]
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        return list(pool.map(work, items))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--what", choices=("cael", "paper", "classical", "boosted"), required=True)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--trials", type=int, default=TRIALS)
    runner.add_argument("--device", default="cpu")
    runner.add_argument("--jobs", type=int, default=1)
    runner.add_argument("--cells", nargs="+")
    runner.add_argument("--estimators", nargs="+", default=CLASSICAL, choices=CLASSICAL)
    page = commands.add_parser("page")
    page.add_argument("--rows", nargs="+", type=Path, required=True)
    page.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "page":
        from cael.experiments.beyond_page import publish

        publish(chosen.rows, chosen.out)
        return
    names = chosen.cells or (sweeps() if chosen.what == "paper" else list(cells()))
    rows: list[dict[str, Any]] = []
    for found in run(chosen.what, names, chosen.trials, chosen.device, chosen.jobs, chosen.estimators):
        rows += found
        chosen.out.write_text(json.dumps(rows, allow_nan=False) + "\n")
        for each in dict.fromkeys(r["estimator"] for r in found):
            world, _ = cells()[found[0]["cell"]]
            truth = world.value(world.target)
            errors = np.array([r["value"] - truth for r in found if r["estimator"] == each and "value" in r])
            print(f"  {each}: {np.mean(errors**2):.5g}", flush=True)


if __name__ == "__main__":
    main()
