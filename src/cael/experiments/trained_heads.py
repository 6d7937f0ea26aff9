"""Does a loss that minimises the mean squared error make the embedding better? The paper's claim, with exact weights.

    python -m cael.experiments.trained_heads run  --out docs/results/objective.json [--device cuda] [--jobs 6]
    python -m cael.experiments.trained_heads page --out docs/results

f is CAEL's: the cross-fitted prediction of a sparse network. A separate head on f, m codes with learned places and
widths that move with the context, is trained on

    (1/n) mean_i sum_a mu W^2 sigma^2 + delta^2 (mean_i D_i)^2,

the variance with known second moments and the sharp bias bound, over all actions, so that no reward of the log enters
but sigma^2 and delta^2. Both terms and their gradients are exact. Rows: heads with few and with many codes before
training, after training for several delta^2 (in units of CAEL's own prior for the residual signal), and CAEL itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import cael
from cael.embedding.exact.blend import TRUST
from cael.embedding.exact.rewards import SparseRewards, blocks, sparse_rewards
from cael.engine.asking import ask
from cael.experiments.ledger import in_parallel, read_json
from cael.experiments.markdown import table
from cael.experiments.summary import accuracy_of
from cael.log.held import Held
from cael.policies.policy import probabilities

STEPS, ROWS, RATE = 300, 64, 0.03
CODES, DELTAS = (4, 16, 64), (0.01, 0.1, 1.0, 10.0)
FIRST = 40_000
"""The first seed of the logs."""
WORLDS = ("paper", "independent", "dense", "deficient", "embedding-linear", "embedding-logistic")


def head(f: Tensor, x: Tensor, p: dict[str, Tensor]) -> Tensor:
    """P (B, k, m): codes at places c + U x with widths exp(h), for f (B, k) and contexts x (B, d)."""
    place = p["place"] + x @ p["move"]
    return torch.softmax(-0.5 * ((f[..., None] - place[:, None]) * torch.exp(-p["width"])) ** 2, dim=-1)


def smoothed(codes: Tensor, mu: Tensor, pi: Tensor) -> tuple[Tensor, Tensor]:
    """(W (B, k), D (B,)) of `cael.codes.discrete`, differentiable."""
    rho = torch.einsum("bk,bkm->bm", pi, codes) / torch.einsum("bk,bkm->bm", mu, codes).clamp(min=1e-12)
    away = (pi[..., None] - mu[..., None] * rho[:, None]).abs()
    return torch.einsum("bkm,bm->bk", codes, rho), 0.5 * (codes * away).sum(dim=(1, 2))


def trained(
    f: Tensor, x: Tensor, mu: Tensor, pi: Tensor, noise: float, delta: float, seed: int, codes: int, steps: int
) -> dict[str, Tensor]:
    """The head after `steps` of Adam; 0 steps is where it starts: an even grid over f."""
    low, high = torch.quantile(
        f.flatten()[:: max(1, f.numel() // 100_000)], torch.tensor([0.005, 0.995], device=f.device)
    )
    place = torch.linspace(0, 1, codes, device=f.device) * (high - low) + low
    p = {
        "place": place,
        "move": torch.zeros(x.shape[1], codes, device=f.device),
        "width": torch.full((codes,), float(torch.log((high - low) / codes)), device=f.device),
    }
    p = {name: value.requires_grad_() for name, value in p.items()}
    optimiser = torch.optim.Adam(list(p.values()), lr=RATE * float(high - low))
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(f), (ROWS,), generator=draw).to(f.device)
        w, rough = smoothed(head(f[rows], x[rows], p), mu[rows], pi[rows])
        loss = noise * (mu[rows] * w**2).sum(dim=1).mean() / len(f) + delta * rough.mean() ** 2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: value.detach() for name, value in p.items()}


def one_log(
    world: Any, log: cael.LoggedData, rewards: SparseRewards, seed: int, device: torch.device
) -> dict[str, float]:
    """The estimates of one log by each head, in the self-normalised doubly robust form."""
    k, logged = log.n_actions, (np.arange(len(log)), log.actions)
    logging = cast(cael.Policy, log.logging)
    mu = np.concatenate([probabilities(logging, batch) for batch in log.batches(k)])
    pi = np.concatenate([probabilities(world.target, batch) for batch in log.batches(k)])
    f = np.empty((len(log), k))
    for fold, rows in enumerate(rewards.folds):
        for batch, of in blocks(log, rows, width=k):
            f[of] = rewards.predict(fold, batch)
    residual, target = log.rewards - f[logged], float((pi * f).sum(axis=1).mean())
    noise = float(residual.var())
    prior = noise * (1 - rewards.explained) ** TRUST

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=device)

    f_, x, mu_, pi_ = tensor(f), tensor(_scaled(log.contexts)), tensor(mu), tensor(pi)
    heads = [
        (f"{codes} codes, {training}", codes, delta * prior, steps)
        for codes in CODES
        for training, delta, steps in [("not trained", 0.0, 0), *((f"delta^2 = {d:g} S", d, STEPS) for d in DELTAS)]
    ]
    values = {}
    for name, codes, delta, steps in heads:
        p = trained(f_, x, mu_, pi_, noise, delta, seed, codes, steps)
        parts = []
        for at in range(0, len(log), ROWS):
            part = slice(at, at + ROWS)
            parts.append(smoothed(head(f_[part], x[part], p), mu_[part], pi_[part])[0].cpu().numpy())
        w = np.concatenate(parts)[logged].astype(np.float64)
        values[name] = target + float(w @ residual / w.sum())
    flagship = cael.CAEL(seed=seed)
    trained_before = {flagship.trained_by: rewards}
    answer = ask(
        Held(log), {"": world.target}, [flagship], asked=(flagship.name,), learned=trained_before, controls=None
    )
    return {**values, "CAEL": answer.of(flagship.name, 0).value}


def _scaled(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)


def one_world(name: str, trials: int, device: str) -> tuple[str, dict[str, dict[str, float]]]:
    """The name, and squared errors of each head in one world, with Monte Carlo standard errors of their means."""
    world, n = cael.worlds.suite()[name]
    seeds = [FIRST + t for t in range(trials)]
    logs = [world.sample(n, seed) for seed in seeds]
    size = trials if device == "cuda" else 1
    fitted: list[SparseRewards] = []
    for at in range(0, trials, size):
        fitted += sparse_rewards(logs[at : at + size], cael.Growth(device=device), 5, seeds[at : at + size])
    estimates = [one_log(world, *trial, torch.device(device)) for trial in zip(logs, fitted, seeds, strict=True)]
    truth = world.value(world.target)
    rows = {}
    for key in estimates[0]:
        accuracy = accuracy_of(np.array([values[key] for values in estimates]) - truth)
        rows[key] = {"mse": accuracy.mse, "error": accuracy.mse_error}
    print(name, {key: f"{row['mse']:.4g} ± {row['error']:.2g}" for key, row in rows.items()}, flush=True)
    return name, rows


def run(names: Sequence[str], trials: int, device: str, jobs: int, out: Path) -> None:
    """All worlds, several at once; each is written as it ends, and one that the file has is not run again."""
    settings = {"trials": trials, "first_seed": FIRST, "steps": STEPS}
    before = read_json(out, {**settings, "worlds": {}})
    worlds = before.pop("worlds")
    if before != settings:
        raise SystemExit(f"{out} holds another run than {settings}: move it away, or name another file with --out.")
    calls = [(name, trials, device) for name in names if name not in worlds]
    for name, rows in in_parallel(one_world, calls, jobs):
        worlds[name] = rows
        ordered = {world: worlds[world] for world in WORLDS if world in worlds}
        out.write_text(json.dumps({**settings, "worlds": {**ordered, **worlds}}, indent=1) + "\n")


def page(folder: Path) -> None:
    """Render objective.json in `folder` as the table that the documentation includes."""
    worlds = read_json(folder / "objective.json", None)["worlds"]
    rows = [
        [key, *(f"{rows[key]['mse']:.2g} ± {rows[key]['error']:.1g}" for rows in worlds.values())]
        for key in next(iter(worlds.values()))
    ]
    (folder / "objective.inc").write_text(table(["codes", *worlds], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="worlds at once")
    parser.add_argument("--worlds", nargs="+", default=WORLDS)
    chosen = parser.parse_args()
    if chosen.what == "page":
        page(chosen.out)
        return
    run(chosen.worlds, chosen.trials, chosen.device, chosen.jobs, chosen.out)


if __name__ == "__main__":
    main()
