"""Line 5 of Algorithm 1: the posterior mu(a|x, e), fitted on one mini-batch.

Both forms minimise sum_i -log P(a_i|z_i) + |weights|^2 / (2 C) over the classes that occur in the batch; an action that
does not occur has probability 0 there, unless the logging policy is given as an offset, when all k actions take part.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cael.embedding.settings import Objective
from cael.errors import InputError
from cael.log import LoggedData
from cael.policy import probabilities
from cael.posterior import SoftmaxPosterior, fit_softmax

FINAL_BYTES = 2**29
"""The final posterior is fitted on the device, all trials at once, when its (T, n, k) array needs no more than this."""


@final
@dataclass
class SoftmaxHead:
    """A full-k softmax head, (T, p + 1, k) with the intercept last, warm-started from batch to batch.

    table: the coefficients. C: inverse penalty. offset: whether log mu(a|x) is added and all actions take part.
    """

    table: Tensor
    C: float
    offset: bool

    def fit(
        self, z: Tensor, a: Tensor, log_mu: Tensor | None, tolerance: float = 1e-4, max_iter: int = 100
    ) -> list[float]:
        """Move the head to the optimum of this batch: z (T, B, p), a (T, B), log_mu (T, B, k) or None.

        Returns the largest component of the gradient that is left, for each trial.
        """
        z1 = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        classes, label, real = self._classes(a)
        start = torch.gather(self.table, 2, classes[:, None].expand(-1, z1.shape[-1], -1))
        extra = torch.zeros_like(real, dtype=z.dtype).masked_fill(~real, -torch.inf)[:, None]
        if log_mu is not None:
            extra = extra + torch.gather(log_mu, 2, classes[:, None].expand(-1, z.shape[1], -1))
        # Half of the last batch's coefficients is a better start than all of them: they were fitted to its rows.
        found, left = _minimise(
            _Likelihood(z1, label, extra, self.C, real.sum(dim=1)), start / 2, real, tolerance, max_iter
        )
        place = classes[:, None].expand(-1, z1.shape[-1], -1)
        self.table = self.table.scatter(2, place, torch.where(real[:, None], found, start))
        return left

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
    """The objective of one batch per trial: z1 (T, B, p + 1), label (T, B), extra added to the logits, C.

    classes: (T,) how many classes of each trial are real; the others are padding with logit -inf.
    """

    z1: Tensor
    label: Tensor
    extra: Tensor
    C: float
    classes: Tensor

    def __post_init__(self) -> None:
        t, b, width = self.z1.shape
        c, like = int(self.extra.shape[-1]), {"dtype": self.z1.dtype, "device": self.z1.device}
        self.z1_t = self.z1.transpose(1, 2)
        ones = torch.zeros(t, b, c, **like).scatter_(2, self.label[..., None], 1.0)
        self.observed = torch.bmm(self.z1_t, ones) / b
        self.label = self.label[..., None]
        self.penalty = torch.full((t, width, 1), 1 / (self.C * b), **like)
        self.penalty[:, -1] = 0.0
        if bool((self.classes == 2).any()):  # scikit-learn has one logit for two classes, and penalises that
            self.penalty[self.classes == 2] *= 2
        self.ridge = torch.diag_embed(self.penalty[..., 0] + 1e-3 / b)[:, None]
        self.outer = (self.z1[..., :, None] * self.z1[..., None, :]).reshape(t, b, width * width)
        self.factor = (self.classes / (self.classes - 1).clamp(min=1) / b).to(self.z1.dtype)[:, None, None]

    def __call__(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss (T,), the mean negative log-likelihood plus penalty; gradient (T, p + 1, c); posterior (T, B, c)."""
        logits = torch.bmm(self.z1, table) + self.extra
        logits = torch.log_softmax(logits, dim=-1)
        loss = 0.5 * (self.penalty * table**2).sum(dim=(1, 2)) - torch.gather(logits, 2, self.label)[..., 0].mean(dim=1)
        p = torch.exp(logits)
        gradient = torch.baddbmm(self.penalty * table - self.observed, self.z1_t, p, alpha=1 / self.z1.shape[1])
        return loss, gradient, p

    def newton(self, gradient: Tensor, p: Tensor) -> Tensor:
        """Each class's own block of the Hessian, inverted, times the gradient; (T, p + 1, c).

        On tables whose classes sum to 0, the factor c / (c - 1) makes them exact for two classes and for uniform p.
        """
        blocks = torch.bmm(((p - p * p) * self.factor).transpose(1, 2), self.outer)
        blocks = blocks.reshape(*blocks.shape[:2], self.z1.shape[-1], -1) + self.ridge
        return torch.linalg.solve_ex(blocks, gradient.transpose(1, 2)[..., None])[0][..., 0].transpose(1, 2)


def _minimise(fun: _Likelihood, x: Tensor, real: Tensor, tolerance: float, max_iter: int) -> tuple[Tensor, list[float]]:
    """Newton's method with the class blocks of the Hessian, for T problems at once, each with its own backtracking.

    With many classes the blocks are nearly the whole Hessian. The loss does not change when all classes move together
    (but for the penalty, which is least when they sum to 0), so tables and steps are kept at sum 0. real: (T, c).
    """
    mask = real[:, None].to(x.dtype)
    share = mask / fun.classes[:, None, None]

    def centred(table: Tensor) -> Tensor:
        return (table - (table * share).sum(dim=2, keepdim=True)) * mask

    rounding = 10 * torch.finfo(x.dtype).eps
    x = centred(x)
    loss, gradient, p = fun(x)
    for _ in range(max_iter):
        direction = centred(fun.newton(gradient, p))
        new, step = x - direction, None
        new_loss, new_gradient, p = fun(new)
        for _ in range(20):
            worse = ~(new_loss <= loss * (1 + rounding))
            # One look at the device per step: is any trial worse, has any not converged?
            any_worse, all_done = torch.stack([worse.any(), (new_gradient.abs() <= tolerance).all()]).tolist()
            if not any_worse:
                break
            step = torch.where(worse, 0.5, 1.0) if step is None else torch.where(worse, step / 2, step)
            new = x - step[:, None, None] * direction
            new_loss, new_gradient, p = fun(new)
        x, loss, gradient = new, new_loss, new_gradient
        if all_done:
            break
    return x, gradient.abs().amax(dim=(1, 2)).tolist()


def fit_all_rows(features: Sequence[np.ndarray], logs: Sequence[LoggedData], settings: Objective, max_iter: int,
                 device: torch.device) -> list[SoftmaxPosterior]:  # fmt: skip
    """Line 10: the posterior of each trial on all its rows; features: (n, p) of each.

    At once on the device where everything fits into FINAL_BYTES, else one by one from blocks of rows (`fit_softmax`):
    the same optimum.
    """
    n, k = len(logs[0]), logs[0].n_actions
    if not settings.offset and any((log.actions == log.actions[0]).all() for log in logs):
        raise InputError("a posterior over actions needs at least two different logged actions.")
    if len(logs) * n * k * 8 > FINAL_BYTES:
        return [
            fit_softmax(log, each, C=settings.C, offset=settings.offset, max_iter=max_iter)
            for log, each in zip(logs, features, strict=True)
        ]
    z = torch.as_tensor(np.stack(features), dtype=torch.float64, device=device)
    a = torch.as_tensor(np.stack([log.actions for log in logs]), device=device)
    log_mu = None
    if settings.offset:
        tables = [np.concatenate([probabilities(log.logging, b) for b in log.batches(k)]) for log in logs]  # type: ignore[arg-type]
        log_mu = torch.log(torch.as_tensor(np.stack(tables), dtype=torch.float64, device=device))
    head = SoftmaxHead(
        torch.zeros(len(logs), z.shape[2] + 1, k, dtype=z.dtype, device=device), settings.C, settings.offset
    )
    gradients = head.fit(z, a, log_mu, tolerance=1e-6, max_iter=max_iter)
    found = []
    for table, log, gradient in zip(head.table.cpu().numpy(), logs, gradients, strict=True):
        classes = np.arange(k) if settings.offset else np.unique(log.actions)
        found.append(
            SoftmaxPosterior(classes, table[:-1, classes], table[-1, classes], settings.offset, gradient <= 1e-5)
        )
    return found


def sklearn_head(z: Tensor, a: Tensor, k: int, C: float, tolerance: float = 1e-4) -> Tensor:
    """The literal line 5: scikit-learn's LogisticRegression from scratch, as a (T, p + 1, k) table; other classes 0."""
    from sklearn.linear_model import LogisticRegression

    tables = []
    for features, labels in zip(z.detach().cpu().double().numpy(), a.cpu().numpy(), strict=True):
        table = np.zeros((features.shape[1] + 1, k))
        if (labels == labels[0]).all():
            tables.append(torch.as_tensor(table, dtype=z.dtype))
            continue
        with warnings.catch_warnings():  # of more classes than half the rows, which is what the paper asks for
            warnings.simplefilter("ignore", UserWarning)
            model = LogisticRegression(C=C, max_iter=1000, tol=tolerance).fit(features, labels)
        if len(model.classes_) == 2:  # scikit-learn keeps one logit for two classes
            half = np.vstack([-model.coef_[0], model.coef_[0]]) / 2, np.array([-1, 1]) * model.intercept_[0] / 2
        else:
            half = model.coef_, model.intercept_
        table[:-1, model.classes_], table[-1, model.classes_] = half[0].T, half[1]
        tables.append(torch.as_tensor(table, dtype=z.dtype))
    return torch.stack(tables).to(z.device)
