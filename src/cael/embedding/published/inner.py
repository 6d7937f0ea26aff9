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

from cael.embedding.graphs import beforehand
from cael.embedding.settings import Objective
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities
from cael.policies.posterior import SoftmaxPosterior, fit_softmax

FINAL_BYTES = 2**29
"""The final posterior is fitted on the device when its (n, k) array needs no more than this, as many trials at once."""

MANY = 35
"""Blocks of the Hessian for each of their lines, from which on a CPU eliminates in all of them at once."""


@final
@dataclass
class SoftmaxHead:
    """A full-k softmax head, (T, p + 1, k) with the intercept last, warm-started from batch to batch.

    table: the coefficients. C: inverse penalty. offset: whether log mu(a|x) is added and all actions take part.
    """

    table: Tensor
    C: float
    offset: bool
    graph: GraphedFit | None = None

    def fit(
        self, z: Tensor, a: Tensor, log_mu: Tensor | None, tolerance: float = 1e-4, max_iter: int = 100
    ) -> tuple[Tensor, Tensor]:
        """Move the head to the optimum of this batch: z (T, B, p), a (T, B), log_mu (T, B, k) or None.

        Returns the largest component of the gradient that is left (T,), and sum_a mu(a|z)^2 of the rows (T, B).
        """
        if z.is_cuda and log_mu is None and z.shape[1] <= GRAPH_ROWS:
            if self.graph is None or not self.graph.fits(z, a, tolerance):
                self.graph = GraphedFit(self, z, a, tolerance)
            self.table, left, squares = self.graph(z, a, self.table, max_iter)
            return left, squares
        start = self.begin(z, a, log_mu, self.table)
        state = start.fun.advance(start.state)
        for _ in range(max_iter - 1):
            if bool(start.fun.settled(state, tolerance).all()):
                break
            state = start.fun.advance(state, tolerance)
        self.table, left, squares = start.finish(state)
        return left, squares

    def begin(self, z: Tensor, a: Tensor, log_mu: Tensor | None, table: Tensor, width: int | None = None) -> Start:
        """The objective of this batch and where the solver starts; width: room for so many classes (None: as found)."""
        z1 = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        classes, label, real = self._classes(a, width)
        place = classes[:, None].expand(-1, z1.shape[-1], -1)
        extra = torch.zeros_like(real, dtype=z.dtype).masked_fill(~real, -torch.inf)[:, None]
        if log_mu is not None:
            extra = extra + torch.gather(log_mu, 2, classes[:, None].expand(-1, z.shape[1], -1))
        fun = _Likelihood(z1, label, extra, self.C, real)
        warm = torch.gather(table, 2, place)
        # Half of the last batch's coefficients is a better start than all of them: they were fitted to its rows.
        return Start(fun, fun.first(warm / 2), place, warm, table)

    def _classes(self, a: Tensor, width: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """The classes of each trial (T, c), padded; the rows' labels among them (T, B); and which are not padding."""
        k = self.table.shape[2]
        if self.offset:
            classes = torch.arange(k, device=a.device).expand(len(a), k)
            return classes, a, torch.ones_like(classes, dtype=torch.bool)
        seen = torch.zeros(len(a), k, dtype=torch.bool, device=a.device).scatter(1, a, True)
        width = int(seen.sum(dim=1).max()) if width is None else width
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

    real: (T, c) which classes of each trial take part; the others are padding with logit -inf and coefficients 0.
    Few, large operations: on a GPU the time is their number.
    """

    z1: Tensor
    label: Tensor
    extra: Tensor
    C: float
    real: Tensor

    def __post_init__(self) -> None:
        (t, b, width), c = self.z1.shape, int(self.extra.shape[-1])
        like = {"dtype": self.z1.dtype, "device": self.z1.device}
        self.z1_t = self.z1.transpose(1, 2).contiguous()
        self.ones = torch.zeros(t, b, c, **like).scatter_(2, self.label[..., None], 1.0)
        self.observed = torch.bmm(self.z1_t, self.ones) / b
        self.label = self.label[..., None]
        count = self.real.sum(dim=1).to(self.z1.dtype)[:, None, None]
        penalty = torch.full((t, width, 1), 1 / (self.C * b), **like)
        penalty[:, -1] = 0.0
        # scikit-learn has one logit for two classes, and penalises that
        self.penalty = torch.where(count == 2, 2 * penalty, penalty)
        self.ridge = torch.diag_embed(self.penalty[..., 0] + 1e-3 / b)[..., None]
        # On tables whose classes sum to 0, the factor c / (c - 1) makes the blocks of the Hessian exact for two
        # classes and for uniform p.
        factor = count / (count - 1).clamp(min=1) / b
        self.scaled = self.z1_t * factor
        self.pairs = _pairs(self.scaled, self.z1_t) if width <= c else None
        self.mask = self.real[:, None].to(self.z1.dtype)
        self.share = self.mask.transpose(1, 2) / count

    def __call__(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss (T,), the mean negative log-likelihood plus penalty; gradient (T, p + 1, c); posterior (T, B, c)."""
        p = torch.softmax(torch.baddbmm(self.extra, self.z1, table), dim=-1)
        pull = self.penalty * table
        # A label whose probability is rounded to 0 makes the loss infinite, and the step is not taken.
        loss = 0.5 * (pull * table).sum(dim=(1, 2)) - torch.log(torch.gather(p, 2, self.label)).mean(dim=(1, 2))
        gradient = torch.baddbmm(pull - self.observed, self.z1_t, p, alpha=1 / self.z1.shape[1])
        return loss, gradient, p

    def first(self, x: Tensor) -> State:
        """The state at a table x.

        The first blocks of the Hessian are taken half-way between p and the labels: a class is rare under the p of the
        start, so its own block there is too flat and the step too long.
        """
        x = self.centred(x * self.mask)
        loss, gradient, p = self(x)
        return State(x, loss, gradient, p, (p + self.ones) / 2, torch.ones_like(loss))

    def settled(self, state: State, tolerance: float) -> Tensor:
        """(T,) whether a trial needs no further step: no component of its gradient is larger, or it is not finite."""
        return ~(state.gradient.abs().amax(dim=(1, 2)) > tolerance)

    def advance(self, state: State, tolerance: float = 0.0) -> State:
        """One Newton step with the class blocks of the Hessian; a trial that it makes worse stays, and halves its step.

        So does a trial that is settled: how many steps it makes must not depend on those beside it.

        With many classes the blocks are nearly the whole Hessian. The loss does not change when all classes move
        together (but for the penalty, which is least when they sum to 0), so tables and steps are kept at sum 0.
        """
        new = state.x - state.step[:, None, None] * self.newton(state.gradient, state.curvature)
        loss, gradient, p = self(new)
        better = (loss <= state.loss * (1 + 10 * torch.finfo(loss.dtype).eps)) & ~self.settled(state, tolerance)
        if not loss.is_cuda and bool(better.all()):
            return State(new, loss, gradient, p, p, torch.ones_like(state.step))
        taken = better[:, None, None]
        p = torch.where(taken, p, state.p)
        return State(
            torch.where(taken, new, state.x),
            torch.where(better, loss, state.loss),
            torch.where(taken, gradient, state.gradient),
            p,
            p,
            torch.where(better, 1.0, state.step / 2),
        )

    def newton(self, gradient: Tensor, p: Tensor) -> Tensor:
        """Each class's own block of the Hessian, inverted, times the gradient; (T, p + 1, c), classes at sum 0."""
        w = torch.addcmul(p, p, p, value=-1)
        return self.centred(_solve(self.blocks(w) + self.ridge, gradient))

    def blocks(self, w: Tensor) -> Tensor:
        """sum_i w_ic z_i z_i' of each class, scaled; (T, p + 1, p + 1, c) from w (T, B, c)."""
        if self.pairs is None:  # fewer classes than inputs
            return torch.matmul(self.scaled[:, None], self.z1[:, None] * w.mT[..., None]).permute(0, 2, 3, 1)
        (products, place), width = self.pairs, self.z1.shape[-1]
        return torch.bmm(products, w).index_select(1, place).unflatten(1, (width, width))

    def centred(self, table: Tensor) -> Tensor:
        """The table less its mean over the real classes; the padding, which is 0, stays 0."""
        return torch.baddbmm(table, torch.bmm(table, self.share), self.mask, alpha=-1)


def _pairs(scaled: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Products (T, pairs, B) of the lines of two (T, m, B), each pair once, and where each of the m x m is in them."""
    m = z.shape[1]
    at = torch.arange(m, device=z.device)
    low, high = torch.minimum(at[:, None], at), torch.maximum(at[:, None], at)
    i, j = torch.triu_indices(m, m, device=z.device)
    return scaled.index_select(1, i) * z.index_select(1, j), (low * m - low * (low + 1) // 2 + high).ravel()


def _solve(blocks: Tensor, right: Tensor) -> Tensor:
    """blocks^-1 right for small positive definite blocks (T, m, m, c), right (T, m, c).

    By elimination, which needs no pivots here, for all classes at once: a library's solver takes one block after the
    other, which is faster only for few of them, and does not fit into a CUDA graph.
    """
    t, m, _, c = blocks.shape
    if not blocks.is_cuda and t * c < MANY * m:
        return torch.linalg.solve_ex(blocks.permute(0, 3, 1, 2), right.transpose(1, 2))[0].transpose(1, 2)
    system = torch.cat([blocks, right[:, :, None]], dim=2)
    for i in range(m):
        row = system[:, i, 1:] / system[:, i, :1]
        system = torch.addcmul(system[:, :, 1:], system[:, :, :1], row[:, None], value=-1)
        system[:, i] = row
    return system[:, :, 0]


@final
@dataclass(frozen=True)
class State:
    """Where the solver is: table, loss (T,), gradient, posterior p; p for the next blocks; step (T,)."""

    x: Tensor
    loss: Tensor
    gradient: Tensor
    p: Tensor
    curvature: Tensor
    step: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return self.x, self.loss, self.gradient, self.p, self.curvature, self.step


@final
@dataclass(frozen=True)
class Start:
    """The objective of a batch and the solver's first state; place, warm: where its classes are in the table."""

    fun: _Likelihood
    state: State
    place: Tensor
    warm: Tensor
    table: Tensor

    def finish(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """The new table (T, p + 1, k), the largest component of the gradient (T,), and sum p^2 of the rows (T, B)."""
        table = self.table.scatter(2, self.place, torch.where(self.fun.real[:, None], state.x, self.warm))
        return table, state.gradient.abs().amax(dim=(1, 2)), (state.p * state.p).sum(dim=-1)


GRAPH_ROWS = 1024
"""Batches up to this size are fitted by CUDA graphs on a GPU: there the time is the number of launches."""
STEPS = 4
"""Steps of a graph. The limits of steps in use are multiples of it, so that a GPU stops where a CPU does."""


@final
class GraphedFit:
    """`SoftmaxHead.fit` for one shape of batches as three CUDA graphs: begin and first steps, more steps, finish."""

    def __init__(self, head: SoftmaxHead, z: Tensor, a: Tensor, tolerance: float) -> None:
        self.tolerance = tolerance
        self.z, self.a, self.table = z.clone(), a.clone(), head.table.clone()
        width = min(a.shape[1], head.table.shape[2])

        def begin() -> tuple[Start, State]:
            start = head.begin(self.z, self.a, None, self.table, width)
            state = start.state
            for step in range(STEPS):
                state = start.fun.advance(state, self.tolerance if step else 0.0)
            return start, state

        def once() -> None:
            start, state = begin()
            start.finish(start.fun.advance(state))

        beforehand(once)
        self.first, self.more, self.last = (torch.cuda.CUDAGraph() for _ in range(3))
        with torch.cuda.graph(self.first):
            self.start, self.state = begin()
            self.open = ~self.start.fun.settled(self.state, tolerance).all()
        with torch.cuda.graph(self.more):
            state = self.state
            for _ in range(STEPS):
                state = self.start.fun.advance(state, self.tolerance)
            for mine, new in zip(self.state.tensors()[:4], state.tensors()[:4], strict=True):
                mine.copy_(new)
            self.state.step.copy_(state.step)
            self.open.copy_(~self.start.fun.settled(self.state, tolerance).all())
        with torch.cuda.graph(self.last):
            self.result = self.start.finish(self.state)

    def fits(self, z: Tensor, a: Tensor, tolerance: float) -> bool:
        same = self.z.shape == z.shape and self.z.dtype == z.dtype and self.a.shape == a.shape
        return same and self.tolerance == tolerance

    def __call__(self, z: Tensor, a: Tensor, table: Tensor, max_iter: int) -> tuple[Tensor, Tensor, Tensor]:
        for mine, new in ((self.z, z), (self.a, a), (self.table, table)):
            mine.copy_(new)
        self.first.replay()
        steps = STEPS
        while bool(self.open) and steps < max_iter:
            self.more.replay()
            steps += STEPS
        self.last.replay()
        return self.result[0].clone(), self.result[1].clone(), self.result[2].clone()


def fit_all_rows(features: Sequence[np.ndarray], logs: Sequence[LoggedData], settings: Objective, max_iter: int,
                 device: torch.device) -> list[SoftmaxPosterior]:  # fmt: skip
    """Line 10: the posterior of each trial on all its rows; features: (n, p) of each.

    On the device where a trial fits into FINAL_BYTES, else from blocks of rows (`fit_softmax`): the same optimum. Which
    of the two depends on the size of one log alone, so that a trial has its numbers beside any others.
    """
    n, k = len(logs[0]), logs[0].n_actions
    if not settings.offset and any((log.actions == log.actions[0]).all() for log in logs):
        raise InputError("a posterior over actions needs at least two different logged actions.")
    if n * k * 8 > FINAL_BYTES:
        return [
            fit_softmax(log, of_log, C=settings.C, offset=settings.offset, max_iter=max_iter)
            for log, of_log in zip(logs, features, strict=True)
        ]
    size = max(1, FINAL_BYTES // (2 * n * k * 8))
    parts = (slice(at, at + size) for at in range(0, len(logs), size))
    return [each for part in parts for each in _fit_at_once(features[part], logs[part], settings, max_iter, device)]


def _fit_at_once(features: Sequence[np.ndarray], logs: Sequence[LoggedData], settings: Objective, max_iter: int,
                 device: torch.device) -> list[SoftmaxPosterior]:  # fmt: skip
    k = logs[0].n_actions
    z = torch.as_tensor(np.stack(features), dtype=torch.float64, device=device)
    a = torch.as_tensor(np.stack([log.actions for log in logs]), device=device)
    log_mu = None
    if settings.offset:
        tables = [np.concatenate([probabilities(log.logging, b) for b in log.batches(k)]) for log in logs]  # type: ignore[arg-type]
        log_mu = torch.log(torch.as_tensor(np.stack(tables), dtype=torch.float64, device=device))
    head = SoftmaxHead(
        torch.zeros(len(logs), z.shape[2] + 1, k, dtype=z.dtype, device=device), settings.C, settings.offset
    )
    left, _ = head.fit(z, a, log_mu, tolerance=1e-6, max_iter=max_iter)
    posteriors = []
    for table, log, gradient in zip(head.table.cpu().numpy(), logs, left.tolist(), strict=True):
        of = np.arange(k) if settings.offset else np.unique(log.actions)
        posteriors.append(SoftmaxPosterior(of, table[:-1, of], table[-1, of], settings.offset, gradient <= 1e-5))
    return posteriors


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
