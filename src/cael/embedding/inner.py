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

    def fit(self, z: Tensor, a: Tensor, log_mu: Tensor | None, tolerance: float = 1e-4, max_iter: int = 100) -> None:
        """Move the head to the optimum of this batch: z (T, B, p), a (T, B), log_mu (T, B, k) or None."""
        z1 = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        classes, label, real = self._classes(a)
        start = torch.gather(self.table, 2, classes[:, None].expand(-1, z1.shape[-1], -1))
        extra = torch.zeros_like(real, dtype=z.dtype).masked_fill(~real, -torch.inf)[:, None]
        if log_mu is not None:
            extra = extra + torch.gather(log_mu, 2, classes[:, None].expand(-1, z.shape[1], -1))
        # Half of the last batch's coefficients is a better start than all of them: they were fitted to its rows.
        found = _minimise(_Likelihood(z1, label, extra, self.C), start / 2, real, tolerance, max_iter)
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

    def inverse_blocks(self, table: Tensor, classes: Tensor) -> Tensor:
        """The inverse (T, c, p + 1, p + 1) of each class's own block of the Hessian; classes: (T,) how many there are.

        On tables whose classes sum to 0, the factor c / (c - 1) makes them exact for two classes and for uniform p.
        """
        t, b, width = self.z1.shape
        p = torch.softmax(torch.bmm(self.z1, table) + self.extra, dim=-1)
        outer = (self.z1[..., :, None] * self.z1[..., None, :]).reshape(t, b, width * width)
        curvature = p * (1 - p) * (classes / (classes - 1).clamp(min=1))[:, None, None]
        blocks = torch.bmm(curvature.transpose(1, 2), outer).reshape(t, -1, width, width) / b
        return torch.linalg.inv(blocks + torch.diag(self.penalty[:, 0] + 1e-3 / b))


def _minimise(fun: _Likelihood, x: Tensor, real: Tensor, tolerance: float, max_iter: int) -> Tensor:
    """Newton's method with the class blocks of the Hessian, for T problems at once, each with its own backtracking.

    With many classes the blocks are nearly the whole Hessian. The loss does not change when all classes move together
    (but for the penalty, which is least when they sum to 0), so tables and steps are kept at sum 0. real: (T, c).
    """
    classes = real.sum(dim=1)

    def centred(table: Tensor) -> Tensor:
        table = table * real[:, None]
        return (table - table.sum(dim=2, keepdim=True) / classes[:, None, None]) * real[:, None]

    x = centred(x)
    loss, gradient = fun(x)
    for _ in range(max_iter):
        if bool((gradient.abs().amax(dim=(1, 2)) <= tolerance).all()):
            break
        step = torch.ones_like(loss)
        raw = torch.matmul(fun.inverse_blocks(x, classes), gradient.transpose(1, 2)[..., None])[..., 0]
        direction = -centred(raw.transpose(1, 2))
        slope = (direction * gradient).sum(dim=(1, 2))
        for _ in range(20):
            new = x + step[:, None, None] * direction
            new_loss, new_gradient = fun(new)
            worse = ~(new_loss <= loss + 1e-4 * step * slope + 1e-6 * loss.abs())
            if not bool(worse.any()):
                break
            step = torch.where(worse, step / 2, step)
        x, loss, gradient = new, new_loss, new_gradient
    return x


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
