"""One trial: a log of a cell, an estimator, a row of results. Functions of plain data, so any worker can run them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, final

from cael.embedding.settings import Diverged
from cael.engine.answer import Answer
from cael.engine.asking import ask
from cael.errors import CaelError
from cael.estimators.problem import Problem
from cael.experiments import registry
from cael.experiments.logs import truth_of
from cael.inference.diagnostics import TrainingFacts
from cael.inference.estimate import Estimate
from cael.log.held import Held

Answered: TypeAlias = Estimate | CaelError
FORMAT = 3
"""Goes into every key: raise it when a change of the code makes old rows wrong. Since 3 the published networks train in
64 bits, and a row is the same alone, in any block and on any device."""
LEARNED = {
    "bias_loss": "bias_loss", "variance_loss": "variance_loss", "entropy": "renyi_entropy",
    "effective_actions": "effective_actions",
}  # fmt: skip
"""What a row says of a learned posterior -> its name in `TrainingFacts`."""


@final
@dataclass(frozen=True)
class Task:
    """Trials that one worker runs: an estimator of the registry on logs of n rows. trials: (world, seed) of each.

    auto: the name under which Auto chooses between this estimator, which is CAEL then, and the others, so that both
    need one training; empty: nothing chooses.
    """

    trials: tuple[tuple[dict[str, Any], int], ...]
    n: int
    estimator: dict[str, Any]
    name: str
    device: str
    quick: bool
    auto: str = ""

    @property
    def keys(self) -> list[str]:
        """One per row: what it is, and nothing about where or in which order it runs."""
        estimators = [built(self), chooser(self)] if self.auto else [built(self)]
        every = [registry.described(estimator) for estimator in estimators]
        return [key_of(world, self.n, settings, seed) for settings in every for world, seed in self.trials]

    @property
    def names(self) -> list[str]:
        """Of the estimators of the rows, in the order of their keys."""
        return [name for name in (self.name, self.auto) if name for _ in self.trials]

    @property
    def size(self) -> int:
        """About how much work it is, to begin with the largest."""
        return self.n * sum(world.get("n_actions", 500) for world, _ in self.trials)

    @property
    def seeds(self) -> list[int]:
        return [seed for _, seed in self.trials]


def built(task: Task) -> Any:
    return registry.make(**task.estimator, device=task.device, quick=task.quick)


def chooser(task: Task) -> Any:
    return registry.make("Auto", device=task.device, quick=task.quick)


def canonical(data: Any) -> str:
    """JSON that is the same for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def key_of(world: dict[str, Any], n: int, estimator: Any, seed: int) -> str:
    """A hash of the content of a trial."""
    content = {"world": world, "n": n, "estimator": estimator, "seed": seed, "format": FORMAT}
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:24]


def run(task: Task) -> list[dict[str, Any]]:
    """The rows of a task in the order of its keys. An estimator that refuses gives a row with its error."""
    with one_thread() if task.device == "cpu" else nullcontext():
        worlds = [truth_of(canonical(world))[0] for world, _ in task.trials]
        problems = [Problem(w.sample(task.n, seed), w.target) for w, seed in zip(worlds, task.seeds, strict=True)]
        meter = Meter(task.device)
        groups = _with_auto(task, problems) if task.auto else [_answers(built(task), problems, task.seeds)]
        costs = [meter.read(len(problems)) for _ in groups]
        answers = [(answer, cost) for group, cost in zip(groups, costs, strict=True) for answer in group]
        rows = zip(task.keys, task.names, [*task.trials] * len(groups), answers, strict=True)
        return [_row(task.n, key, name, trial, *answer) for key, name, trial, answer in rows]


def _with_auto(task: Task, problems: list[Problem]) -> list[Sequence[Answered]]:
    """The estimates of CAEL and those of Auto, which need one training."""
    estimator = built(task)
    try:
        trained = estimator.trained_on(problems, task.seeds)
    except CaelError:
        trained = [(replace(estimator, seed=seed), {}) for seed in task.seeds]
    pairs = []
    for problem, (seeded, learned) in zip(problems, trained, strict=True):
        auto = replace(chooser(task), cael=seeded, seed=seeded.seed)
        answer = ask(Held(problem.log), {"": problem.policy}, [seeded, auto], learned=learned, controls=None)
        pairs.append((_of(answer, seeded.name), _of(answer, auto.name)))
    return [list(group) for group in zip(*pairs, strict=True)]


def _of(answer: Answer, name: str) -> Answered:
    skipped = {name: reason for _, name, reason in answer.skipped}
    try:
        return CaelError(skipped[name]) if name in skipped else answer.of(name, 0)
    except CaelError as error:
        return error


def _answers(estimator: Any, problems: list[Problem], seeds: list[int]) -> Sequence[Answered]:
    """All at once where networks are trained; one by one where that is refused, so that each is told its own reason."""
    if len(problems) > 1:
        try:
            for problem in problems:
                problem.require(estimator.name, estimator.needs)
            estimates: list[Estimate] = estimator.solve_many(problems, seeds)
            return estimates
        except Diverged as error:
            return _without(error, estimator, problems, seeds)
        except CaelError:
            pass
    return [_solved(estimator, problem, seed) for problem, seed in zip(problems, seeds, strict=True)]


def _without(error: Diverged, estimator: Any, problems: list[Problem], seeds: list[int]) -> Sequence[Answered]:
    """The error for those whose training diverged; the others again, which have the same numbers without them."""
    left = [t for t in range(len(problems)) if t not in error.trials]
    answers = iter(_answers(estimator, [problems[t] for t in left], [seeds[t] for t in left]) if left else [])
    return [next(answers) if t in left else error for t in range(len(problems))]


def _solved(estimator: Any, problem: Problem, seed: int) -> Answered:
    try:
        problem.require(estimator.name, estimator.needs)
        return registry.seeded(estimator, seed).solve(problem)
    except CaelError as error:
        return error


def _row(
    n: int, key: str, name: str, trial: tuple[dict[str, Any], int], answer: Answered, cost: dict[str, Any]
) -> dict[str, Any]:
    world, seed = trial
    row: dict[str, Any] = {
        "key": key, "world": world, "n": n, "estimator": name, "seed": seed,
        "truth": truth_of(canonical(world))[1],
    }  # fmt: skip
    if isinstance(answer, CaelError):
        return {**row, "error": f"{type(answer).__name__}: {answer}", "cost": cost}
    interval, normal, facts = answer.interval(), answer.interval(method="normal"), answer.diagnostics
    return {
        **row, "value": answer.value, "stderr": answer.stderr, "low": interval.low, "high": interval.high,
        "normal_low": normal.low, "normal_high": normal.high, "mean_weight": facts.mean_weight,
        "mean_weight_z": facts.mean_weight_z, "effective_sample_size": facts.effective_sample_size,
        **_learned(facts.training), "cost": cost,
    }  # fmt: skip


def _learned(facts: TrainingFacts | None) -> dict[str, float]:
    return {} if facts is None else {name: getattr(facts, field) for name, field in LEARNED.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for all arithmetic: sums in another order would make results depend on the number of cores.

    torch takes its number of threads from the environment when it is first imported, and from a call afterwards.
    """
    from threadpoolctl import threadpool_limits

    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@final
class Meter:
    """Seconds and peak memory of a stretch of work: of the device, or of the process where the system can tell."""

    def __init__(self, device: str) -> None:
        self._cuda = device != "cpu" and _cuda()
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self._before = None if self._cuda else _reset_peak()
        self._start = time.perf_counter()

    def read(self, trials: int) -> dict[str, Any]:
        """Per trial; `together` says how many were run at once, and memory is divided among them."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            peak: float | None = torch.cuda.max_memory_allocated() / 2**20
        else:
            after = _status("VmHWM")
            peak = None if self._before is None or after is None else max(0.0, after - self._before)
        seconds = (time.perf_counter() - self._start) / trials
        megabytes = None if peak is None else round(peak / trials, 2)
        return {"seconds": round(seconds, 4), "megabytes": megabytes, "together": trials}


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _reset_peak() -> float | None:
    """Forget the peak memory of this process; its present memory in MiB, or None where the system has no such thing."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what the next estimate needs
    except (OSError, AttributeError):
        return None
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return float(kilobytes[0]) / 1024 if kilobytes else None
