"""Ridge regression from sums: one pass over the log trains the models of all folds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, choose
from cael.log.batch import at_rows, chunks
from cael.log.keys import fold_of_each, parts_of_keys
from cael.log.logged import LoggedData
from cael.outcomes.action_sums import Summing, Sums, total
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome
from cael.outcomes.normal_equations import Coefficients, Penalties, System, nothing, solutions
from cael.outcomes.outcome_model import ACTION_INPUTS, FittedOutcome, OutcomeModel, action_inputs

ALPHAS, ONEHOT_ALPHAS = (1e5, 1e4, 1e3, 1e2, 1e1, 1e0), (1e4, 1e2, 1e1, 1e0)
"""Penalties that "auto" chooses from, the strongest first: of two equal losses the stronger penalty wins."""
PRODUCT_ALPHAS = (1e4, 1e3, 1e2, 1e1, 1e0)
"""Penalties of the products of contexts and action features."""
HALF, WEAKER, STRONGER = 1.0, (0.3, 0.1, 0.03, 0.01), (3.0, 10.0)
"""Penalties of an action's own slopes, in rows per action: that of HALF shrinks slopes by half. Weaker ones, else
stronger ones, are tried for as long as they predict better, and none where half the slopes are worse than no slopes."""
MANY = 300
"""With more contexts and features than this, when one solve takes milliseconds, every other penalty is left out."""
MOST_SUMS = 2**21
"""Products of contexts are summed by part of the rows and action where they are at most so many numbers (16 MiB)."""
MOST_PRODUCTS = 300
"""Contexts are multiplied by features where that takes at most so many coefficients: (1 + contexts) (1 + features)."""
MOST_KEPT = 2**23
"""Systems of equations are kept for the next penalties where they are at most so many numbers (64 MiB)."""
BETTER = 1e-9
"""Share of the squared error by which interactions must predict better: less is rounding."""
FOLDS = 5
"""Folds of the choice where the caller has none of its own."""


@final
@dataclass(frozen=True)
class Ridge(OutcomeModel):
    """q(x, a) = c + beta'x + gamma'phi(a) + delta_a, and x'B phi(a) + x'b_a where these predict better; squared error
    plus penalties on the squared coefficients.

    Contexts and action features are standardised first; c is not penalised. Everything follows from sums by action,
    so the cost is O(n d^2) for any number of actions and folds, and the choice of penalties needs no other pass.

    alpha: strength of the penalty. "auto" takes one for beta and gamma and others for delta, B and b, those with the
    least squared error on held-out folds of the rows that it trains on.
    actions: "onehot" (delta, b), "features" (gamma, B), "both"; "auto" is one-hot plus features where the log has them.
    interactions: whether there are B and b. "auto" asks the held-out folds, where alpha does; a given alpha is without.

    >>> Ridge(alpha=2.0)
    Ridge(alpha=2.0, actions='auto', interactions='auto')
    """

    weighs: ClassVar[bool] = True
    alpha: float | str = "auto"
    actions: str = "auto"
    interactions: bool | str = "auto"

    def __post_init__(self) -> None:
        choose("actions", self.actions, ACTION_INPUTS)
        if not isinstance(self.interactions, bool) and self.interactions != "auto":
            raise InputError(f"interactions must be True, False or 'auto'; got {self.interactions!r}.")
        if self.alpha == "auto":
            return
        if isinstance(self.alpha, str) or not (np.isfinite(self.alpha) and self.alpha > 0):
            raise InputError(f"alpha must be a positive number or 'auto'; got {self.alpha!r}.")

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        count = min(FOLDS, log.groups) if isinstance(self.alpha, str) else 1
        fold = log.fold_numbers(count, seed) if isinstance(self.alpha, str) else np.zeros(len(log), dtype=np.intp)
        return self.solve_from(log, self._sums(log, fold, count), [frozenset()])[0]

    def fit_without(self, log: LoggedData, held_out: list[Array], seed: int) -> list[FittedOutcome]:
        count = len(held_out)
        # The penalties of a fold are chosen on the other folds; of two folds, the other one is halved for that.
        halves = 2 if count == 2 and isinstance(self.alpha, str) else 1
        part = fold_of_each(held_out, len(log)) * halves + parts_of_keys(log.keys, 2, halves, seed) % halves
        without = [frozenset(range(at * halves, (at + 1) * halves)) for at in range(count)]
        return list(self.solve_from(log, self._sums(log, part, count * halves), without))

    def solve_from(
        self, log: LoggedData, parts: Sequence[Sums], without: Sequence[frozenset[int]]
    ) -> list[AdditiveOutcome | InteractingOutcome]:
        """For each set of parts of the rows, the model of all other parts. log: for the inputs."""
        choice = Choice(self, Inputs.of(self, log), tuple(parts))
        return [choice.model(hidden) for hidden in without]

    def sums_by_action(self, parts: int, k: int, d: int) -> bool:
        """Whether products of contexts are to be summed by action, which interactions take."""
        wanted = self.interactions is True or (self.interactions == "auto" and self.alpha == "auto")
        size = parts * k * d * d
        if self.interactions is True and size > MOST_SUMS:
            raise InputError(
                f"{self!r} takes {size} sums for {k} actions, {d} contexts and {parts} parts of the rows; at most "
                f"{MOST_SUMS} are kept. Use fewer contexts, or interactions='auto'."
            )
        return wanted and k > 1 and d > 0 and size <= MOST_SUMS

    def _sums(self, log: LoggedData, part: Ints, parts: int) -> list[Sums]:
        """The sums of each part of the rows, in one pass over the log."""
        d = log.contexts.shape[1]
        first = next(log.batches(d + 1))
        by_action = self.sums_by_action(parts, log.n_actions, d)
        shifts = first.contexts.mean(axis=0), (float(first.rewards.mean()),)
        sums = Summing(parts, log.n_actions, *shifts, by_action=by_action)
        for rows, batch in zip(chunks(len(log), d + 1), log.batches(d + 1), strict=True):
            sums.add(part[rows], batch.actions, batch.contexts, (batch.rewards,), at_rows(log.counted, rows))
        return sums.done()


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """What a model is told about actions: features phi (k, F), and whether which action it is."""

    phi: Floats
    onehot: bool

    @staticmethod
    def of(model: Ridge, log: LoggedData) -> Inputs:
        onehot, features = action_inputs(model.actions, log, model)
        phi = log.action_features if features and log.action_features is not None else np.empty((log.n_actions, 0))
        return Inputs(phi, onehot)


@final
@dataclass(frozen=True, eq=False)
class Judge:
    """Squared errors on each part of the rows, of models that did not see it."""

    phi: Floats
    parts: tuple[Sums, ...]
    errors: dict[tuple[frozenset[int], Penalties], dict[int, float]] = field(default_factory=dict)
    systems: dict[frozenset[int], System] = field(default_factory=dict)

    @cached_property
    def everything(self) -> Sums:
        return total(self.parts)

    def models(self, hidden: frozenset[int], settings: Sequence[Penalties]) -> Iterator[Coefficients]:
        """The models of all parts but some, one for each of these penalties."""
        system = self._training(hidden)
        return nothing(self.everything, settings) if system is None else system.solve(settings)

    def _training(self, hidden: frozenset[int]) -> System | None:
        """The sums of all parts but some; None without rows."""
        if hidden in self.systems:
            return self.systems[hidden]
        sums = self.everything
        for at in sorted(hidden):
            sums = sums.plus(self.parts[at], sign=-1)
        if not sums.counts.any():
            return None
        system = System.of(sums, self.phi)
        if len(self.parts) ** 2 * (system.z.size + sums.xx.size) <= MOST_KEPT:
            self.systems[hidden] = system
        return system

    def losses(self, hidden: frozenset[int], settings: Sequence[Penalties]) -> Floats:
        """For each of the penalties, the error on every part that is not hidden, of the model of the other parts."""
        losses = np.zeros(len(settings))
        for at in sorted(set(range(len(self.parts))) - hidden):
            self._learn(hidden | {at}, settings)
            losses += [self.errors[hidden | {at}, each][at] for each in settings]
        return losses

    def _learn(self, hidden: frozenset[int], settings: Sequence[Penalties]) -> None:
        # Errors, not models, are kept: each model has a number for every action.
        unknown = [each for each in settings if (hidden, each) not in self.errors]
        if unknown and not self.parts[0].by_action:
            self._learn_additive(hidden, unknown)
        elif unknown:
            for each, model in zip(unknown, self.models(hidden, unknown), strict=True):
                errors = {at: self.parts[at].squared_error(model.effect, model.slope) for at in hidden}
                self.errors[hidden, each] = errors

    def _learn_additive(self, hidden: frozenset[int], settings: Sequence[Penalties]) -> None:
        system, k, d = self._training(hidden), *self.parts[0].x.shape
        for _, alike in itertools.groupby(settings, key=lambda each: each.onehot):
            run = list(alike)
            none = np.zeros((len(run), k)), np.zeros((len(run), d))
            models = none if system is None else system.additive(run)
            errors = {at: self.parts[at].squared_errors(*models).tolist() for at in hidden}
            for number, each in enumerate(run):
                self.errors[hidden, each] = {at: errors[at][number] for at in hidden}


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """The penalties of a model that predict held-out parts best: of the additive model first, then of products of
    contexts and features, then of actions' own slopes."""

    ridge: Ridge
    inputs: Inputs
    parts: tuple[Sums, ...]

    @cached_property
    def interacting(self) -> bool:
        return self.parts[0].by_action

    @cached_property
    def additive_judge(self) -> Judge:
        return Judge(self.inputs.phi, tuple(part.pooled for part in self.parts))

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.inputs.phi, self.parts)

    def model(self, hidden: frozenset[int]) -> AdditiveOutcome | InteractingOutcome:
        """The model of all parts but some; its penalties are those that predict these parts best."""
        penalties = self._penalties(hidden)
        judge = self.additive_judge if penalties.products is penalties.slopes is None else self.judge
        return next(judge.models(hidden, [penalties])).outcome(self.parts[0])

    def balancing(self, tilt: Floats, *, interacting: bool) -> FittedOutcome:
        """A function v(x, a) whose product with a row's residual is the row's influence, as a training row, on the mean
        prediction under a target.

        Ridge is linear in the rewards: with D the inputs of a row, g their mean under the target and H the penalised
        matrix of products, the mean prediction is g'H^-1 sum_i D_i r_i, and row i counts by v_i = n D_i'H^-1 g. That is
        what a ridge model predicts whose matrix is the same and whose products with the reward are n g. The penalties
        are weak ones of the choice: the error of nearly unbiased coefficients also allows for what a stronger penalty
        shrinks away.

        tilt: (k, 1 + d) means of the target's probabilities times [1, contexts in the shifts of the sums]; (k, 1) where
        slopes are shared. interacting: whether actions have slopes of their own.
        """
        whole = (self.judge if interacting else self.additive_judge).everything
        n = float(whole.counts.sum())
        products = n * tilt[:, 1:] if interacting else whole.x.sum(axis=0)[None]
        moved = replace(whole, r=n * tilt[:, 0], xr=products, rr=0.0, r_shift=0.0)
        if isinstance(self.ridge.alpha, str):
            penalties = self._weak(n / len(whole.counts), interacting=interacting)
        else:
            penalties = self._given(self.ridge.alpha)
        return next(solutions(moved, self.inputs.phi, [penalties])).outcome(moved)

    def _weak(self, rows: float, *, interacting: bool) -> Penalties:
        """Penalties that shrink little; rows: of an action."""
        onehot = ONEHOT_ALPHAS[-1] if self.inputs.onehot else None
        return Penalties(
            ALPHAS[-1], onehot, PRODUCT_ALPHAS[-1] if interacting and self._multiplies else None,
            WEAKER[1] * max(1.0, rows) if interacting and self.inputs.onehot else None,
        )  # fmt: skip

    def _penalties(self, hidden: frozenset[int]) -> Penalties:
        if not isinstance(self.ridge.alpha, str):
            return self._given(self.ridge.alpha)
        grid = self._grid()
        losses = self.additive_judge.losses(hidden, grid)
        best, loss = grid[int(losses.argmin())], float(losses.min())
        if not self.interacting:
            return best
        best, loss = self._better(hidden, self._products(best), best, self._to_beat(loss))
        return self._slopes(hidden, best, self._to_beat(loss))

    def _to_beat(self, loss: float) -> float:
        """The loss of the model without more interactions; infinite where they are wanted anyway."""
        return np.inf if self.ridge.interactions is True else loss

    def _given(self, alpha: float) -> Penalties:
        onehot = alpha if self.inputs.onehot else None
        if not self.interacting:
            return Penalties(alpha, onehot)
        return Penalties(alpha, onehot, alpha if self._multiplies else None, onehot)

    def _grid(self) -> list[Penalties]:
        many = self.inputs.phi.shape[1] + self.parts[0].x.shape[1] > MANY
        step = 2 if many else 1
        strengths: Sequence[float | None] = ONEHOT_ALPHAS[::step] if self.inputs.onehot else (None,)
        return [Penalties(alpha, strength) for strength in strengths for alpha in ALPHAS[::step]]

    @cached_property
    def _multiplies(self) -> bool:
        # More features than actions are replaced by one for each action.
        columns, d = min(self.inputs.phi.shape), self.parts[0].x.shape[1]
        return columns > 0 and (1 + columns) * (1 + d) <= MOST_PRODUCTS

    def _products(self, best: Penalties) -> list[Penalties]:
        return [best._replace(products=alpha) for alpha in PRODUCT_ALPHAS] if self._multiplies else []

    def _slopes(self, hidden: frozenset[int], best: Penalties, loss: float) -> Penalties:
        if not self.inputs.onehot:
            return best
        rows = max(1.0, float(self.judge.everything.counts.mean()))
        half, least = self._better(hidden, [best._replace(slopes=HALF * rows)], best, loss)
        if half is best:
            return best
        weaker = self._walk(hidden, half, least, [alpha * rows for alpha in WEAKER])
        return self._walk(hidden, half, least, [alpha * rows for alpha in STRONGER]) if weaker is half else weaker

    def _walk(self, hidden: frozenset[int], best: Penalties, loss: float, slopes: list[float]) -> Penalties:
        """The last of these penalties before one that predicts worse."""
        for alpha in slopes:
            tried, loss = self._better(hidden, [best._replace(slopes=alpha)], best, loss)
            if tried is best:
                break
            best = tried
        return best

    def _better(
        self, hidden: frozenset[int], settings: list[Penalties], best: Penalties, loss: float
    ) -> tuple[Penalties, float]:
        """The best of some penalties and those that were best before, and its loss."""
        if not settings:
            return best, loss
        losses = self.judge.losses(hidden, settings)
        better = losses.min() < loss * (1 - BETTER)
        return (settings[int(losses.argmin())], float(losses.min())) if better else (best, loss)
