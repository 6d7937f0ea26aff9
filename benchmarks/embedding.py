"""The learned embeddings on one core: a training step as the paper writes it and ours, and the bias loss as k grows.

    python benchmarks/embedding.py

Takes about two minutes and never fails on a number. It writes EMBEDDING.md next to this file.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cael
from cael.embedding import build, training
from cael.embedding.batches import trial_data
from cael.embedding.published import losses
from cael.embedding.published.inner import SoftmaxHead, sklearn_head
from cael.embedding.published.objective import CAELLoss, WeightSource
from cael.embedding.settings import Objective, objective
from cael.embedding.tensors import Torch
from cael.worlds import PaperWorld

HERE = Path(__file__).resolve().parent
COMMAND = "make bench"
ROWS, BATCH, STEPS = 1000, 256, 15
CLAIM = 20
SIZES = (100, 1_000, 10_000, 100_000)
CPU = torch.device("cpu")
PAIRS = 2**25
"""The pair sum makes an array of at most so many entries at once."""


def pair_sum(p: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """sum over pairs a < b of p_a p_b |w_a - w_b| as the paper writes it, in O(k^2); (..., k) -> (...)."""
    if p.dim() > 2:
        return torch.stack([pair_sum(*each) for each in zip(p, w, strict=True)])
    k = p.shape[-1]
    rows, columns = (len(p), k) if len(p) * k * k <= 2 * PAIRS else (1, max(1, PAIRS // k))
    found = []
    for q, v in zip(p.split(rows), w.split(rows), strict=True):
        parts = [
            (q_b[:, :, None] * q[:, None] * (v_b[:, :, None] - v[:, None]).abs()).sum(dim=(1, 2))
            for q_b, v_b in zip(q.split(columns, dim=1), v.split(columns, dim=1), strict=True)
        ]
        found.append(torch.stack(parts).sum(dim=0) / 2)
    return torch.cat(found)


class Literal:
    """Lines 5 to 7 of Algorithm 1 to the letter: scikit-learn from scratch on the batch, and a sum over all pairs."""

    def __init__(self, network: Any, chosen: Objective, weights: WeightSource, n: int, k: int) -> None:
        self.network, self.chosen, self.weights, self.n, self.k = network, chosen, weights, n, k
        self.sklearn: list[float] = []

    def __call__(self, parameters: Any, step: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        e = self.network.embed(parameters, step.x, step.a, step.masks)
        r_hat = self.network.reward(parameters, e, step.x)
        given = self.weights.rows(step.rows)
        z = e if self.chosen.posterior_gradient else e.detach()
        start = time.perf_counter()
        head = SoftmaxHead(sklearn_head(z, step.a, self.k, self.chosen.C), self.chosen.C, False)
        self.sklearn.append(time.perf_counter() - start)
        p = head.posterior(z, torch.zeros(1, self.k, dtype=torch.bool).scatter(1, step.a, True), None)
        reward = losses.reward_loss(r_hat, step.r)
        bias = losses.bias_loss(pair_sum(p, given.w))
        variance = losses.variance_loss(r_hat, (p**2).sum(dim=-1), given.squares, self.n)
        total = reward + self.chosen.alpha * bias + self.chosen.beta * variance
        return total, {"reward": reward, "bias": bias, "variance": variance}


class Clock:
    """A loss that notes when each step began, after some steps with another one."""

    def __init__(self, loss: Any, before: Any, steps: int) -> None:
        self.loss, self.before, self.left = loss, before, steps
        self.at: list[float] = []
        self.first: dict[str, float] = {}

    def __call__(self, parameters: Any, step: Any) -> Any:
        if self.left:
            self.left -= 1
            return self.before(parameters, step)
        if not self.at:  # all losses of the first step, for the comparison
            step = replace(step, record=True)
        self.at.append(time.perf_counter())
        total, parts = self.loss(parameters, step)
        self.first = self.first or {name: float(value.detach()[0]) for name, value in parts.items()}
        return total, parts

    @property
    def per_step(self) -> float:
        """Mean seconds of the steps after the first."""
        return (self.at[-1] - self.at[1]) / (len(self.at) - 2)


def step_seconds(preset: str, after: int, literal: bool) -> tuple[float, float, dict[str, float]]:
    """Seconds of a training step after so many others, those in scikit-learn, and the losses of the first one."""
    world = PaperWorld()
    log, chosen = world.sample(ROWS, 0), objective(preset)
    network = build.context_action_network([log], cael.NetworkSettings(), CPU)
    weights = WeightSource([log], [world.target], CPU, sort=chosen.posterior_gradient, log_mu=False)
    fast = CAELLoss(network, chosen, weights)
    loss = Literal(network, chosen, weights, len(log), log.n_actions) if literal else fast
    clock = Clock(loss, fast, after)
    steps = after + STEPS + 2
    settings = cael.Training(iterations=steps, batch_size=BATCH, check_every=steps)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        training.train(network, trial_data([log], Torch(CPU)), clock, settings, [0])
    inside = statistics.mean(loss.sklearn[1:]) if isinstance(loss, Literal) else 0.0
    return clock.per_step, inside, clock.first


def steps_table() -> tuple[list[list[str]], list[str]]:
    rows, verdicts = [], []
    for preset, after in product(("constant-posterior", "through-posterior"), (0, 500)):
        slow, inside, slow_losses = step_seconds(preset, after, literal=True)
        fast, _, fast_losses = step_seconds(preset, after, literal=False)
        worst = max(abs(fast_losses[name] / value - 1) for name, value in slow_losses.items())
        ratio = slow / fast
        times = [f"{1e3 * slow:.0f}", f"{1e3 * inside:.0f}", f"{1e3 * fast:.2f}"]
        rows.append([preset, str(after), *times, f"{ratio:.0f}", f"{inside / fast:.1f}", f"{worst:.0e}"])
        holds = "holds" if ratio >= CLAIM else "does not hold"
        verdicts.append(
            f"A training step of preset {preset!r} after {after} others is at least {CLAIM}x faster: {holds} "
            f"({ratio:.0f}x; {inside / fast:.1f}x against scikit-learn's part alone)."
        )
    return rows, verdicts


def repeated(run: Callable[[], Any], least: float = 0.5, most: int = 200) -> float:
    """Median seconds of a call."""
    run()
    took: list[float] = []
    while sum(took) < least and len(took) < most:
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def bias_table() -> tuple[list[list[str]], list[str]]:
    rows, per_entry = [], []
    rng = np.random.default_rng(0)
    for k in SIZES:
        b = max(1, 200_000 // k)
        p = torch.as_tensor(rng.dirichlet(np.ones(k), b), dtype=torch.float32)
        w = torch.as_tensor(rng.lognormal(0, 1, (b, k)), dtype=torch.float32)
        ordered = losses.sort_weights(w)
        after, sort = repeated(lambda: losses.half_gini(p, ordered)), repeated(lambda: losses.sort_weights(w))  # noqa: B023
        pairs, worst = "not run", ""
        if k <= 10_000:
            few = max(1, min(b, 2 * PAIRS // k**2))
            seconds = repeated(lambda: pair_sum(p[:few], w[:few]), least=0.2, most=5)  # noqa: B023
            exact = pair_sum(p[:few].double(), w[:few].double())
            difference = losses.half_gini(p, ordered)[:few].double() / exact - 1
            pairs, worst = f"{1e9 * seconds / few / k:.0f}", f"{float(difference.abs().max()):.0e}"
        per_entry.append(after / b / k)
        rows.append([f"{k:,}", f"{b:,}", f"{1e9 * after / b / k:.2f}", f"{1e9 * sort / b / k:.1f}", pairs, worst])
    spread = max(per_entry) / min(per_entry)
    holds = "holds" if spread < 3 else "does not hold"
    return rows, [f"The bias loss after the sort is linear in k (time per entry within 3x): {holds} ({spread:.1f}x)."]


def estimate_table() -> list[list[str]]:
    world, rows = PaperWorld(), []
    log = world.sample(ROWS, 0)
    for preset in ("constant-posterior", "through-posterior"):
        estimator = cael.CAELMIPS(preset)
        start = time.perf_counter()
        found = estimator.estimate(log, world.target)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        replace(estimator, training=replace(estimator.training, iterations=1)).estimate(log, world.target)
        rest = time.perf_counter() - start
        rows.append(
            [estimator.name, str(estimator.training.iterations), f"{seconds:.1f}", f"{rest:.2f}", f"{found.value:.3f}"]
        )
    return rows


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|---" + "|---:" * (len(headers) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main() -> None:
    torch.set_num_threads(1)
    start = time.perf_counter()
    step_rows, step_verdicts = steps_table()
    bias_rows, bias_verdicts = bias_table()
    sections = [
        "# Learned embeddings: time on one core",
        f"Made by `{COMMAND}` (`python benchmarks/embedding.py`) on one of {os.cpu_count()} cores:\n"
        f"cael {cael.__version__}, torch {torch.__version__}, numpy {np.__version__}.",
        f"## One training step, n = {ROWS}, k = 500, batch {BATCH}",
        "Literal: Algorithm 1 to the letter, scikit-learn's logistic regression from scratch on each batch and the\n"
        "bias loss by a sum over all pairs of actions. cael: the same optimum and the same losses, as `CAELMIPS`\n"
        f"computes them. Means over {STEPS} steps, the first left out. Most of the literal form's time is the sum\n"
        "over pairs. Preset `paper` takes the posterior as a constant, so its bias loss has no gradient and cael\n"
        "computes it only for the history; a literal form that left it out as well would take little more than\n"
        "scikit-learn's part. In preset `through` both differentiate it at every step. Difference: the largest of a\n"
        "loss at the first timed step, relative; both solvers stop at their default tolerance.",
        table(
            [
                "preset",
                "after steps",
                "literal, ms",
                "of it scikit-learn",
                "cael, ms",
                "ratio",
                "scikit-learn / cael",
                "difference",
            ],
            step_rows,
        ),
        "## The bias loss, nanoseconds per row and action\n\nThe sort is done once per log, since the weights do not "
        "depend on the network. Difference: of float32 from the pair sum in float64, relative.",
        table(["k", "rows", "after the sort", "the sort", "sum over pairs", "largest difference"], bias_rows),
        f"## One estimate, n = {ROWS}, k = 500\n\nSeconds of `CAELMIPS(...).estimate(log, policy)`; without training: "
        "the same with one iteration, that is the weights of all actions and the final posterior.",
        table(["estimator", "iterations", "seconds", "without training", "value (truth 9.723)"], estimate_table()),
        "\n".join(f"- {verdict}" for verdict in (*step_verdicts, *bias_verdicts)),
    ]
    text = "\n\n".join(sections) + "\n"
    print(text)
    print(f"{time.perf_counter() - start:.0f} s in all")
    (HERE / "EMBEDDING.md").write_text(text)


if __name__ == "__main__":
    main()
