"""The loss of CAEL-MIPS on a mini-batch: the three terms, by whichever reading the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cael.embedding.network import Network, Parameters
from cael.embedding.published import losses
from cael.embedding.published.inner import SoftmaxHead, sklearn_head
from cael.embedding.published.losses import SortedWeights
from cael.embedding.rows import gather_rows
from cael.embedding.settings import Objective
from cael.embedding.training import Step
from cael.estimators.problem import Problem
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, probabilities

CACHE_BYTES = {"cpu": 2**30, "cuda": 2**32}
"""Weights of all rows and actions are kept, sorted, when they need no more than this; else made batch by batch."""


@final
@dataclass(frozen=True)
class RowWeights:
    """w = pi/mu for all actions of some rows: w (T, B, k), squares (T, B), its sorted form, and log mu (T, B, k)."""

    w: Tensor
    squares: Tensor
    sorted: SortedWeights | None
    log_mu: Tensor | None


@final
class WeightSource:
    """The weights of any rows of T logs and targets, on the device; an action that mu never plays gets weight 0."""

    def __init__(
        self, logs: Sequence[LoggedData], policies: Sequence[Policy], device: torch.device, *, sort: bool, log_mu: bool
    ) -> None:
        self.logs, self.policies, self.device = logs, policies, device
        self.sort, self.log_mu = sort, log_mu
        size = sum(len(log) * log.n_actions for log in logs) * 8 * (1 + 2 * sort + log_mu)
        self.kept: RowWeights | None = None
        if size <= CACHE_BYTES[device.type]:
            self.kept = self._make(torch.stack([torch.arange(len(log)) for log in logs]))

    def rows(self, rows: Tensor, every_action: bool = True) -> RowWeights:
        """The weights of these rows (T, B); not every_action: only their sums of squares are looked at."""
        kept = self.kept
        if kept is None:
            return self._make(rows.cpu())
        if not every_action:
            return RowWeights(kept.w[:, :0], gather_rows(kept.squares, rows), None, None)
        order = None
        if kept.sorted is not None:
            order = SortedWeights(gather_rows(kept.sorted.order, rows), gather_rows(kept.sorted.gaps, rows))
        log_mu = None if kept.log_mu is None else gather_rows(kept.log_mu, rows)
        return RowWeights(gather_rows(kept.w, rows), gather_rows(kept.squares, rows), order, log_mu)

    def _make(self, rows: Tensor) -> RowWeights:
        tables = [
            all_weights(log.take(of_log), policy)
            for log, policy, of_log in zip(self.logs, self.policies, rows.numpy(), strict=True)
        ]
        ratios, logs_mu = zip(*tables, strict=True)
        w = torch.as_tensor(np.stack(ratios)).to(self.device)
        log_mu = torch.as_tensor(np.stack(logs_mu)).to(self.device) if self.log_mu else None
        return RowWeights(w, (w**2).sum(dim=-1), losses.sort_weights(w) if self.sort else None, log_mu)


def weights_for(problems: Sequence[Problem], settings: Objective, device: torch.device) -> WeightSource | None:
    """What the loss needs of the weights; None: nothing."""
    if settings.alpha + settings.beta == 0:
        return None
    sort = settings.bias == "gini" and settings.alpha > 0 and settings.posterior_gradient
    logs, policies = [problem.log for problem in problems], [problem.policy for problem in problems]
    return WeightSource(logs, policies, device, sort=sort, log_mu=settings.offset)


def all_weights(log: LoggedData, policy: Policy) -> tuple[np.ndarray, np.ndarray]:
    """(w, log mu), both (n, k) float64."""
    n, k = len(log), log.n_actions
    w, log_mu = np.empty((n, k), dtype=np.float64), np.empty((n, k), dtype=np.float64)
    at = 0
    for batch in log.batches(width=k):
        pi, mu = probabilities(policy, batch), probabilities(log.logging, batch)  # type: ignore[arg-type]
        part = slice(at, at + len(batch))
        w[part] = np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)
        with np.errstate(divide="ignore"):
            log_mu[part] = np.log(mu)
        at += len(batch)
    return w, log_mu


@final
class CAELLoss:
    """L_R + alpha L_bias + beta L_var of a mini-batch, for each trial; refits the posterior on the batch first.

    weights: of the logs; none are needed where alpha and beta are 0.
    """

    def __init__(self, network: Network, settings: Objective, weights: WeightSource | None = None) -> None:
        self.network, self.settings = network, settings
        if weights is not None:
            self.weights, self.n, self.n_actions = weights, len(weights.logs[0]), weights.logs[0].n_actions
        self.head: SoftmaxHead | None = None

    def __call__(self, parameters: Parameters, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.settings
        e = self.network.embed(parameters, step.x, step.a, step.masks)
        r_hat = self.network.reward(parameters, e, step.x)
        parts = {"reward": losses.reward_loss(r_hat, step.r)}
        total = parts["reward"]
        if not (s.needs_posterior or (step.record and s.alpha + s.beta > 0)):
            return total, parts
        biased = step.record or (s.alpha > 0 and s.posterior_gradient)
        whole = biased or s.posterior_gradient or s.variance == "direct" or s.inner == "sklearn"
        weights = self.weights.rows(step.rows, whole or s.offset)
        z, squares = self.fit(e if s.posterior_gradient else e.detach(), step, weights)
        n = self.n if s.variance_n == "dataset" else step.rows.shape[1]
        p = None
        if whole:
            p = self.posterior(z, step, weights)
            squares = (p**2).sum(dim=-1)
        if s.variance == "paper":
            inside = r_hat if s.reward_gradient else r_hat.detach()
            parts["variance"] = losses.variance_loss(inside, squares, weights.squares, n)
        else:
            parts["variance"] = losses.direct_variance_loss(step.r, p, weights.w, n)
        total = total + s.beta * parts["variance"]
        if biased:
            per_row = losses.sharp_bias(p, weights.w) if s.bias == "sharp" else losses.half_gini(p, _sorted(weights))
            parts["bias"] = losses.bias_loss(per_row)
            total = total + s.alpha * parts["bias"]
        return total, parts

    def fit(self, e: Tensor, step: Step, weights: RowWeights) -> tuple[Tensor, Tensor | None]:
        """Refit the head on this batch; its inputs z, and sum_a mu(a|z)^2 of the rows where the solver knows it."""
        z = torch.cat([step.x, e], dim=-1) if self.settings.features == "xe" else e
        if self.head is None:
            t, _, p = z.shape
            start = torch.zeros(t, p + 1, self.n_actions, device=z.device, dtype=z.dtype)
            self.head = SoftmaxHead(start, self.settings.C, self.settings.offset)
        with torch.no_grad():
            if self.settings.inner == "softmax":
                return z, self.head.fit(z.detach(), step.a, self._log_mu(weights))[1]
            self.head.table = sklearn_head(z, step.a, self.n_actions, self.settings.C)
            return z, None

    def posterior(self, z: Tensor, step: Step, weights: RowWeights) -> Tensor:
        """mu(a|z) (T, B, k) by the fitted head; differentiable in z, the head held constant."""
        assert self.head is not None
        seen = torch.zeros(len(z), self.n_actions, dtype=torch.bool, device=z.device).scatter(1, step.a, True)
        return self.head.posterior(z, seen, self._log_mu(weights))

    def _log_mu(self, weights: RowWeights) -> Tensor | None:
        return weights.log_mu if self.settings.offset else None


def _sorted(weights: RowWeights) -> SortedWeights:
    return losses.sort_weights(weights.w) if weights.sorted is None else weights.sorted
