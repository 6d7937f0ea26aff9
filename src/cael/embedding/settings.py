"""Settings of the learned embeddings. Every choice that the paper leaves open is a named field."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, fields, replace
from typing import Any, final

import numpy as np

from cael.errors import InputError, NeedsError, choose, positive_int


@final
class Diverged(InputError):
    """The loss of a training grew without bound. trials: of those that were trained together, which."""

    def __init__(self, message: str, trials: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.trials = trials


@final
@dataclass(frozen=True)
class Training:
    """How a network is trained: mini-batches from shuffled passes over the log, decoupled weight decay, in 64 bits.

    iterations: gradient steps. epochs: passes over the log, in place of iterations. batch_size: rows per step (at most
    the rows of the log). learning_rate, weight_decay: of the steps. optimiser: "adam", or "gradient" for plain steps
    theta - learning_rate * gradient. holdout: share of the rows kept from training to watch the reward loss; 0 for
    none. patience: with a holdout, stop after so many checks without improvement and return the best network seen
    (None: train to the end). check_every: steps between records of the history. device: "cpu", "cuda", or "auto".
    """

    iterations: int = 1000
    batch_size: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    holdout: float = 0.0
    patience: int | None = None
    check_every: int = 50
    device: str = "cpu"
    epochs: int | None = None
    optimiser: str = "adam"

    def __post_init__(self) -> None:
        positive_int("iterations", self.iterations, least=0)
        choose("optimiser", self.optimiser, ("adam", "gradient"))
        if self.epochs is not None:
            positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size, least=2)
        positive_int("check_every", self.check_every)
        choose("device", self.device, ("cpu", "cuda", "auto"))
        if self.patience is not None:
            positive_int("patience", self.patience)
        if not 0 < self.learning_rate < np.inf or not 0 <= self.weight_decay < np.inf:
            raise InputError(f"learning_rate must be > 0 and weight_decay >= 0; got {self}.")
        if not 0 <= self.holdout < 1 or (self.patience is not None and self.holdout == 0):
            raise InputError("holdout must be in [0, 1), and patience needs holdout > 0.")

    def steps(self, rows: int) -> int:
        """Gradient steps on so many rows; a pass has only whole batches."""
        return self.iterations if self.epochs is None else self.epochs * (rows // min(self.batch_size, rows))


@final
@dataclass(frozen=True)
class NetworkSettings:
    """f(x, a): three layers, batch normalisation, ReLU and dropout in the hidden ones; r_hat = e'x.

    hidden_layers: 2, and the output is the third layer of the paper's "three-layer network"; 3 is its other meaning, 0
    is a linear f. hidden: their width. dropout: their dropout rate. batchnorm: whether they are normalised by batches.
    contexts: whether f sees x; without, e depends on the action alone. actions: what f sees of an action: "features"
    (its action_features), "onehot", "both"; "auto" is features where the log has them, else one-hot. embedding_dim:
    None gives e the dimension of x and r_hat = e'x, as in the paper; a number gives it that dimension and
    r_hat = e'(U x) with a learned U. intercept: append 1 to x in r_hat, so that an offset can be fitted.
    """

    hidden: int = 64
    dropout: float = 0.2
    batchnorm: bool = True
    actions: str = "auto"
    embedding_dim: int | None = None
    intercept: bool = False
    hidden_layers: int = 2
    contexts: bool = True

    def __post_init__(self) -> None:
        positive_int("hidden", self.hidden)
        positive_int("hidden_layers", self.hidden_layers, least=0)
        choose("actions", self.actions, ("auto", "features", "onehot", "both"))
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be in [0, 1); got {self.dropout!r}.")
        if self.embedding_dim is not None:
            positive_int("embedding_dim", self.embedding_dim)


@final
@dataclass(frozen=True)
class Growth:
    """How the sparse network of `CAEL` is trained: it grows by action inputs, under a group lasso on every input.

    hidden: width of the two hidden layers. penalties: strengths of the group lasso to choose from, in units of
    1/sqrt(rows) (rewards and inputs have variance 1). steps: of Adam in each round. patience: stop after so many rounds
    without a better held-out loss. restarts: networks of what is chosen, whose predictions are averaged. batch_size,
    learning_rate: of Adam. rows: a longer log trains on a random sample of so many rows, in whole clusters. budget:
    seconds after which no other round begins (None: patience decides); what was trained by then depends on the machine,
    and a warning says that it was cut short. device: "cpu", "cuda", or "auto". parallel: True shares the work of every
    batch among the processes that torchrun started; all of them must make the same call.
    """

    hidden: int = 32
    penalties: tuple[float, ...] = (0.5, 1.5, 4.0)
    steps: int = 300
    patience: int = 2
    restarts: int = 3
    batch_size: int = 256
    learning_rate: float = 0.005
    rows: int = 100_000
    budget: float | None = field(default=None, repr=False, compare=False)  # no part of what is asked
    device: str = "cpu"
    parallel: bool = False

    def __str__(self) -> str:
        """The settings that differ from the default."""
        changed = [
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.repr and getattr(self, f.name) != f.default
        ]
        return f"Growth({', '.join(changed)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalties", tuple(float(each) for each in self.penalties))
        for name in ("hidden", "steps", "patience", "restarts", "rows"):
            positive_int(name, getattr(self, name))
        positive_int("batch_size", self.batch_size, least=2)
        choose("device", self.device, ("cpu", "cuda", "auto"))
        if not self.penalties or not all(0 <= each < np.inf for each in self.penalties):
            raise InputError(f"penalties must be numbers >= 0, at least one; got {self.penalties!r}.")
        if not 0 < self.learning_rate < np.inf:
            raise InputError(f"learning_rate must be > 0; got {self.learning_rate!r}.")
        if self.budget is not None and not self.budget > 0:
            raise InputError(f"budget must be a number of seconds > 0, or None; got {self.budget!r}.")


@final
@dataclass(frozen=True)
class Objective:
    """L = L_R + alpha L_bias + beta L_var, and the posterior inside it: one field for each reading of the paper.

    alpha, beta: weights of the two terms. bias: "gini" (the paper's sum over pairs) or "sharp" (the tight bound).
    variance: "paper" (r_hat^2 sum mu^2 sum w^2) or "direct" (rho^2 r^2). posterior_gradient: True lets the gradient run
    through mu(a|x, e) into e; False takes the fitted posterior as a constant. reward_gradient: whether r_hat inside
    L_var is differentiated. variance_n: the n in L_var, of the "dataset" (theory) or of the "batch". features: the
    posterior's inputs, "e" (line 10 of Algorithm 1) or "xe". offset: give it log mu(a|x). inner: how it is fitted on
    each mini-batch (line 5): "sklearn" (scikit-learn, from scratch) or "softmax" (the same optimum, warm-started, in
    torch). C: inverse penalty of the posterior.
    """

    alpha: float = 10.0
    beta: float = 0.1
    bias: str = "gini"
    variance: str = "paper"
    posterior_gradient: bool = False
    reward_gradient: bool = True
    variance_n: str = "dataset"
    features: str = "e"
    offset: bool = False
    inner: str = "softmax"
    C: float = 1.0

    def __post_init__(self) -> None:
        choose("bias", self.bias, ("gini", "sharp"))
        choose("variance", self.variance, ("paper", "direct"))
        choose("variance_n", self.variance_n, ("dataset", "batch"))
        choose("features", self.features, ("e", "xe"))
        choose("inner", self.inner, ("softmax", "sklearn"))
        if not (self.alpha >= 0 and self.beta >= 0 and np.isfinite(self.alpha + self.beta)):
            raise InputError(f"alpha and beta must be >= 0 and finite; got {self.alpha!r}, {self.beta!r}.")
        if not self.C > 0:
            raise InputError(f"C must be > 0; got {self.C!r}.")
        if self.offset and self.inner == "sklearn":
            raise InputError("scikit-learn's logistic regression takes no offset: use inner='softmax'.")

    @property
    def needs_posterior(self) -> bool:
        """Whether the gradient of L_bias or L_var is not 0, so that a step must look at the posterior."""
        return any(weight > 0 and term not in self.flat for term, weight in (("bias", self.alpha), ("var", self.beta)))

    @property
    def flat(self) -> tuple[str, ...]:
        """The terms of the loss whose gradient is 0 everywhere, "bias" and "var"."""
        through_r_hat = self.variance == "paper" and self.reward_gradient
        return () if self.posterior_gradient else ("bias",) if through_r_hat else ("bias", "var")

    @property
    def without_effect(self) -> tuple[str, ...]:
        """In words: each term that was asked for and trains nothing."""
        weights = {"bias": ("alpha", self.alpha), "var": ("beta", self.beta)}
        return tuple(NO_GRADIENT.format(term=f"L_{term}", weight=weights[term][0]) for term in self.flat
                     if weights[term][1] > 0)  # fmt: skip


NO_GRADIENT = (
    "{term} has no gradient: the posterior is taken as a constant, so {weight} changes nothing in the training. "
    "preset='through-posterior' lets the gradient run through the posterior."
)

PRESETS: dict[str, dict[str, Any]] = {
    # The posterior is taken as a constant, which gives L_bias no gradient (docs: readings).
    "constant-posterior": {},
    # The gradient runs through the posterior, its coefficients held constant.
    "through-posterior": {"posterior_gradient": True},
    # Constant, and the posterior knows the logging policy.
    "offset": {"offset": True},
    # The text, letter by letter: the gradient of the whole loss, n of the batch that the loss is computed on.
    "literal": {"posterior_gradient": True, "variance_n": "batch"},
}
TRAININGS = {"literal": Training(optimiser="gradient", learning_rate=0.001)}
"""Of presets that say how: line 8 of Algorithm 1 is a plain gradient step. Its rate is not in the text; with 1,500
actions the loss grows without bound at 0.01."""


def objective(preset: str, **changes: Any) -> Objective:
    """The objective of a preset, with changes."""
    choose("preset", preset, tuple(PRESETS))
    return replace(Objective(), **{**PRESETS[preset], **changes})


def nearest(chosen: Objective) -> tuple[str, dict[str, Any]]:
    """The preset that differs least from an objective, and the fields that differ."""
    distances = {}
    for preset in PRESETS:
        settings = objective(preset)
        names = [f.name for f in fields(chosen) if getattr(chosen, f.name) != getattr(settings, f.name)]
        distances[preset] = {name: getattr(chosen, name) for name in names}
    return min(distances.items(), key=lambda item: len(item[1]))


def require_torch(name: str) -> None:
    """Say what to install where torch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise NeedsError(f"{name} needs torch, which is not installed: pip install 'cael[torch]'.")
