"""Line 5 of Algorithm 1: the posterior mu(a|x, e), fitted on one mini-batch.

Both forms minimise sum_i -log P(a_i|z_i) + |weights|^2 / (2 C) over the classes that occur in the batch; an action that
does not occur has probability 0 there, unless the logging policy is given as an offset, when all k actions take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor


@final
@dataclass
class SoftmaxHead:
    """A full-k softmax head, (T, p + 1, k) with the intercept last, warm-started from batch to batch.

    table: the coefficients. C: inverse penalty. offset: whether log mu(a|x) is added and all actions take part.
    """

    table: Tensor
    C: float
    offset: bool

    def fit(self, z: Tensor, a: Tensor, log_mu: Tensor | None, tolerance: float = 1e-4, max_iter: int = 200) -> None:
        """Move the head to the optimum of this batch: z (T, B, p), a (T, B), log_mu (T, B, k) or None."""
        z1 = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        classes, label, real = self._classes(a)
        start = torch.gather(self.table, 2, classes[:, None].expand(-1, z1.shape[-1], -1))
        extra = torch.zeros_like(real, dtype=z.dtype).masked_fill(~real, -torch.inf)[:, None]
        if log_mu is not None:
            extra = extra + torch.gather(log_mu, 2, classes[:, None].expand(-1, z.shape[1], -1))
        found = _minimise(_Likelihood(z1, label, extra, self.C), start, tolerance, max_iter)
        place = classes[:, None].expand(-1, z1.shape[-1], -1)
        self.table = self.table.scatter(2, place, torch.where(real[:, None], found, start))

    def _classes(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The classes of each trial (T, c), padded; the rows' labels among them (T, B); and which are not padding."""
        k = self.table.shape[2]
        if self.offset:
            classes = torch.arange(k, device=a.device).expand(len(a), k)
            return classes, a, torch.ones_like(classes, dtype=torch.bool)
        seen = torch.zeros(len(a), k, dtype=torch.bool, device=a.device).scatter(1, a, True)
        width = int(seen.sum(dim=1).max())
        # Stable sort of "not seen" brings the seen classes to the front in their own order.
        classes = torch.sort((~seen).to(torch.uint8), dim=1, stable=True).indices[:, :width]
        real = torch.gather(seen, 1, classes)
        label = torch.gather(torch.cumsum(seen, dim=1) - 1, 1, a)
        return classes, label, real

    def posterior(self, z: Tensor, seen: Tensor, log_mu: Tensor | None) -> Tensor:
        """mu(a|z) for all actions, (T, B, k); differentiable in z. seen: (T, k) the actions that take part."""
        logits = torch.baddbmm(self.table[:, -1:], z, self.table[:, :-1])
        if log_mu is not None:
            return torch.softmax(logits + log_mu, dim=-1)
        return torch.softmax(logits.masked_fill(~seen[:, None], -torch.inf), dim=-1)


@final
@dataclass
class _Likelihood:
    """The objective of one batch per trial: z1 (T, B, p + 1), label (T, B), extra added to the logits, C."""

    z1: Tensor
    label: Tensor
    extra: Tensor
    C: float

    def __post_init__(self) -> None:
        t, b, _ = self.z1.shape
        width = int(self.extra.shape[-1])
        ones = torch.zeros(t, b, width, dtype=self.z1.dtype, device=self.z1.device)
        ones.scatter_(2, self.label[..., None], 1.0)
        self.observed = torch.bmm(self.z1.transpose(1, 2), ones) / b
        self.penalty = torch.full((self.z1.shape[-1], 1), 1 / (self.C * b), device=self.z1.device, dtype=self.z1.dtype)
        self.penalty[-1] = 0.0

    def __call__(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (T,) and gradient (T, p + 1, c) of the mean negative log-likelihood plus the penalty."""
        b = self.z1.shape[1]
        logits = torch.bmm(self.z1, table) + self.extra
        log_norm = torch.logsumexp(logits, dim=-1)
        fit = torch.gather(logits, 2, self.label[..., None])[..., 0]
        loss = (log_norm - fit).mean(dim=1) + 0.5 * (self.penalty * table**2).sum(dim=(1, 2))
        p = torch.exp(logits - log_norm[..., None])
        gradient = torch.bmm(self.z1.transpose(1, 2), p) / b - self.observed + self.penalty * table
        return loss, gradient


def _minimise(fun: _Likelihood, x: Tensor, tolerance: float, max_iter: int, memory: int = 8) -> Tensor:
    """Limited-memory BFGS for T independent smooth convex problems at once, with a backtracking search for each."""
    loss, gradient = fun(x)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(max_iter):
        if bool((gradient.abs().amax(dim=(1, 2)) <= tolerance).all()):
            break
        direction = -_two_loop(gradient, pairs)
        slope = (direction * gradient).sum(dim=(1, 2))
        step = torch.ones_like(loss)
        if not pairs:
            step = torch.clamp(1 / gradient.abs().sum(dim=(1, 2)), max=1.0)
        for _ in range(20):
            new = x + step[:, None, None] * direction
            new_loss, new_gradient = fun(new)
            worse = ~(new_loss <= loss + 1e-4 * step * slope + 1e-6 * loss.abs())
            if not bool(worse.any()):
                break
            step = torch.where(worse, step / 2, step)
        s, y = new - x, new_gradient - gradient
        curvature = (s * y).sum(dim=(1, 2))
        good = curvature > 1e-10
        pairs.append((s, y, torch.where(good, 1 / curvature.clamp(min=1e-30), torch.zeros_like(curvature))))
        del pairs[:-memory]
        x, loss, gradient = new, new_loss, new_gradient
    return x


def _two_loop(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """H g for each trial; a pair without positive curvature has weight 0 and takes no part."""
    q, alphas = gradient, []
    for s, y, weight in reversed(pairs):
        alpha = weight * (s * q).sum(dim=(1, 2))
        q = q - alpha[:, None, None] * y
        alphas.append(alpha)
    if pairs:
        s, y, weight = pairs[-1]
        scale = (s * y).sum(dim=(1, 2)) / (y * y).sum(dim=(1, 2)).clamp(min=1e-30)
        q = q * torch.where(weight > 0, scale, torch.ones_like(scale))[:, None, None]
    for (s, y, weight), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = weight * (y * q).sum(dim=(1, 2))
        q = q + (alpha - beta)[:, None, None] * s
    return q


def sklearn_head(z: Tensor, a: Tensor, k: int, C: float, tolerance: float = 1e-4) -> Tensor:
    """The literal line 5: scikit-learn's LogisticRegression from scratch, as a (T, p + 1, k) table; other classes 0."""
    from sklearn.linear_model import LogisticRegression

    tables = []
    for features, labels in zip(z.detach().cpu().double().numpy(), a.cpu().numpy(), strict=True):
        table = np.zeros((features.shape[1] + 1, k))
        model = LogisticRegression(C=C, max_iter=1000, tol=tolerance).fit(features, labels)
        if len(model.classes_) == 2:  # scikit-learn keeps one logit for two classes
            half = np.vstack([-model.coef_[0], model.coef_[0]]) / 2, np.array([-1, 1]) * model.intercept_[0] / 2
        else:
            half = model.coef_, model.intercept_
        table[:-1, model.classes_], table[-1, model.classes_] = half[0].T, half[1]
        tables.append(torch.as_tensor(table, dtype=z.dtype))
    return torch.stack(tables).to(z.device)
