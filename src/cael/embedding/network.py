"""Networks as pure functions of stacked parameters: every tensor has a leading trial axis T.

One trial is T = 1, so there is one implementation. The first layer is split, W [x, phi(a)] = W_x x + W_a phi(a), so
that all k actions cost one product with the (k, f) action table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, final

import torch
from torch import Tensor

from cael.embedding.rows import gather_rows
from cael.embedding.settings import NetworkSettings
from cael.embedding.stream import Stream

Parameters: TypeAlias = dict[str, Tensor]
"""Trained tensors by name, each (T, ...); names that start with "running" are statistics, not trained."""


class Network(Protocol):
    """e = f(x, a) and r_hat(e, x)."""

    def init(self, stream: Stream) -> Parameters:
        """Fresh parameters, one draw per trial."""

    def embed(self, p: Parameters, x: Tensor, a: Tensor, masks: list[Tensor] | None) -> Tensor:
        """Embeddings (T, B, e) of contexts x (T, B, d) and actions a (T, B); dropout masks mean training mode."""

    def reward(self, p: Parameters, e: Tensor, x: Tensor) -> Tensor:
        """r_hat (..., B) of embeddings (..., B, e) and contexts (..., B, d)."""

    def masks(self, stream: Stream, batch: int) -> list[Tensor]:
        """Dropout masks of one step."""


def around_zero(shape: tuple[int, ...], bound: float, stream: Stream) -> Tensor:
    """(T, *shape) float64 values from U(-bound, bound)."""
    return (2 * stream.uniform(*shape).double() - 1) * bound


def _with_actions(h: Tensor, p: Parameters, phi: Tensor | None, a: Tensor) -> Tensor:
    """h plus W_a phi(a) of actions a (T, B), in the order of p."""
    for name in p:
        if name == "phi" and phi is not None:
            h = h + torch.bmm(gather_rows(phi, a), p[name])
        if name == "onehot":
            h = h + torch.gather(p[name], 1, a[..., None].expand(*a.shape, p[name].shape[-1]))
    return h


@final
@dataclass(frozen=True, eq=False)
class ContextActionNetwork:
    """The paper's network. phi: (1, k, f) action features, or (T, k, f) of each trial, or None; onehot: whether the
    action number is an input."""

    settings: NetworkSettings
    context_dim: int
    n_actions: int
    phi: Tensor | None
    onehot: bool

    @property
    def embedding_dim(self) -> int:
        if self.settings.embedding_dim is not None:
            return self.settings.embedding_dim
        return self.context_dim + self.settings.intercept

    @property
    def cells(self) -> int:
        """Numbers that `reward_all` holds for one context."""
        return self.n_actions * (self.settings.hidden if self.settings.hidden_layers else self.embedding_dim)

    @property
    def hidden(self) -> list[str]:
        """Names of the hidden layers; the layer after them makes e."""
        return [str(layer) for layer in range(1, self.settings.hidden_layers + 1)]

    @property
    def last(self) -> str:
        return str(self.settings.hidden_layers + 1)

    def init(self, stream: Stream) -> Parameters:
        p = {name: around_zero(*shape, stream) for name, shape in self._shapes().items()}
        for layer in self.hidden if self.settings.batchnorm else ():
            # Normalisation takes a bias away again; its gradient is rounding noise, and Adam would follow it.
            p["running_b" + layer] = p.pop("b" + layer)
            for name, value in (("scale", 1.0), ("shift", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
                p[name + layer] = torch.full_like(p["running_b" + layer], value)
        return p

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """The shape of each table, and the bound of its first values: 1/sqrt(inputs of its layer)."""
        d, f, s = self.context_dim * self.settings.contexts, self._features, self.settings
        first, second = 1 / math.sqrt(max(1, d + f + self.n_actions * self.onehot)), 1 / math.sqrt(s.hidden)
        h = s.hidden if s.hidden_layers else self.embedding_dim
        shapes: dict[str, tuple[tuple[int, ...], float]] = {"x": ((d, h), first)} if s.contexts else {}
        shapes["b1"] = (h,), first
        shapes |= {"phi": ((f, h), first)} if f else {}
        shapes |= {"onehot": ((self.n_actions, h), first)} if self.onehot else {}
        for layer in range(2, s.hidden_layers + 2):
            width = h if layer <= s.hidden_layers else self.embedding_dim
            shapes |= {f"w{layer}": ((h, width), second), f"b{layer}": ((width,), second)}
        if s.embedding_dim is not None:
            inputs = self.context_dim + s.intercept
            shapes["u"] = (inputs, s.embedding_dim), 1 / math.sqrt(max(1, inputs))
        return shapes

    @property
    def _features(self) -> int:
        return 0 if self.phi is None else int(self.phi.shape[-1])

    def of_trial(self, trial: int) -> ContextActionNetwork:
        """The network of one trial, where each has action features of its own."""
        if self.phi is None or len(self.phi) == 1:
            return self
        return replace(self, phi=self.phi[trial : trial + 1])

    def masks(self, stream: Stream, batch: int) -> list[Tensor]:
        rate, layers = self.settings.dropout, self.settings.hidden_layers
        kept = stream.kept(rate, layers, batch, self.settings.hidden).double() / (1 - rate)
        return [kept[:, layer] for layer in range(layers)]

    def _bias(self, p: Parameters, layer: str) -> Tensor:
        untrained = self.settings.batchnorm and layer != self.last
        return p[("running_b" if untrained else "b") + layer][:, None]

    def _normalise(self, p: Parameters, h: Tensor, layer: str) -> Tensor:
        """Batch normalisation of h (T, B, h) in training mode; the running statistics move along."""
        if not self.settings.batchnorm:
            return h
        mean = h.mean(dim=1)
        centred = h - mean[:, None]
        var = (centred * centred).mean(dim=1)
        with torch.no_grad():
            b = h.shape[1]
            p["running_mean" + layer].lerp_(mean.detach(), 0.1)
            p["running_var" + layer].lerp_(var.detach() * b / max(1, b - 1), 0.1)
        return centred * (torch.rsqrt(var + 1e-5) * p["scale" + layer])[:, None] + p["shift" + layer][:, None]

    def settled(self, p: Parameters) -> Parameters:
        """Parameters of the same function in evaluation mode without normalisation: it is inside the tables before."""
        if not self.settings.batchnorm:
            return p
        settled = dict(p)
        for layer in self.hidden:
            inverse = torch.rsqrt(p["running_var" + layer] + 1e-5) * p["scale" + layer]
            tables = ("x", "phi", "onehot") if layer == "1" else ("w" + layer,)
            settled |= {name: p[name] * inverse[:, None] for name in tables if name in p}
            bias = (p["running_b" + layer] - p["running_mean" + layer]) * inverse
            settled["running_b" + layer] = bias + p["shift" + layer]
        return settled

    def _hidden(self, p: Parameters, h: Tensor, masks: list[Tensor] | None) -> Tensor:
        """From the sums of the first layer (T, N, h) to what the last takes, (T, N, h); p: settled without masks."""
        for place, layer in enumerate(self.hidden):
            if place:
                h = torch.baddbmm(self._bias(p, layer), h, p["w" + layer])
            h = torch.relu(h) if masks is None else torch.relu(self._normalise(p, h, layer)) * masks[place]
        return h

    def _first(self, p: Parameters, x: Tensor) -> Tensor:
        """What contexts (T, B, d) add to the first layer, (T, B or 1, h)."""
        return torch.baddbmm(self._bias(p, "1"), x, p["x"]) if self.settings.contexts else self._bias(p, "1")

    def embed(self, p: Parameters, x: Tensor, a: Tensor, masks: list[Tensor] | None) -> Tensor:
        p = self.settled(p) if masks is None else p
        h = _with_actions(self._first(p, x).expand(*a.shape, -1), p, self.phi, a)
        h = self._hidden(p, h, masks)
        return torch.baddbmm(self._bias(p, self.last), h, p["w" + self.last]) if self.hidden else h

    def _every(self, p: Parameters, x: Tensor) -> Tensor:
        """What the last layer takes, (T, B, k, h), of contexts with every action; p: settled."""
        h = self._first(p, x).expand(*x.shape[:2], -1)
        table = h.new_zeros(h.shape[0], self.n_actions, h.shape[-1])
        if self.phi is not None:
            table = table + self.phi @ p["phi"]
        if self.onehot:
            table = table + p["onehot"]
        cells = (h[:, :, None] + table[:, None]).reshape(len(h), -1, h.shape[-1])
        return self._hidden(p, cells, None).reshape(*x.shape[:2], self.n_actions, -1)

    def _turned(self, p: Parameters, x: Tensor) -> Tensor:
        """What e is multiplied with in r_hat, (..., e)."""
        if self.settings.intercept:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        if self.settings.embedding_dim is not None:
            x = torch.einsum("t...d,tde->t...e", x, p["u"])
        return x

    def reward(self, p: Parameters, e: Tensor, x: Tensor) -> Tensor:
        return (e * self._turned(p, x)).sum(dim=-1)

    def reward_all(self, p: Parameters, x: Tensor) -> Tensor:
        """r_hat (T, B, k) of contexts x (T, B, d) with every action, in evaluation mode.

        As h'(W x) + b'x, where h is the last hidden layer: the product with its W is one for each context.
        """
        turned, h = self._turned(p, x), self._every(self.settled(p), x)
        if not self.hidden:
            return (h @ turned[..., None])[..., 0]
        v = torch.bmm(turned, p["w" + self.last].transpose(1, 2))
        c = (turned * p["b" + self.last][:, None]).sum(dim=-1)
        return (h @ v[..., None])[..., 0] + c[..., None]


@final
@dataclass(frozen=True, eq=False)
class ActionNetwork:
    """The linear embedding of AEL-MIPS (Cief et al. 2024): e(a) = W [onehot(a), phi(a)] + b, r_hat = e'x + c."""

    context_dim: int
    n_actions: int
    phi: Tensor | None
    onehot: bool

    def init(self, stream: Stream) -> Parameters:
        d, f = self.context_dim, 0 if self.phi is None else int(self.phi.shape[-1])
        bound = 1 / math.sqrt(f + (self.n_actions if self.onehot else 0))
        p = {"b": around_zero((d,), bound, stream)}
        if self.onehot:
            p["onehot"] = around_zero((self.n_actions, d), bound, stream)
        if self.phi is not None:
            p["phi"] = around_zero((f, d), bound, stream)
        p["running_c"] = around_zero((), 1 / math.sqrt(max(1, d)), stream)
        return p

    def masks(self, stream: Stream, batch: int) -> list[Tensor]:
        return []

    def embed(self, p: Parameters, x: Tensor, a: Tensor, masks: list[Tensor] | None) -> Tensor:
        return _with_actions(p["b"][:, None].expand(*a.shape, -1), p, self.phi, a)

    def reward(self, p: Parameters, e: Tensor, x: Tensor) -> Tensor:
        c = p["running_c"].reshape(-1, *([1] * (e.dim() - 2)))
        return (e * x).sum(dim=-1) + c
