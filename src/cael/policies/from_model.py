"""FromModel: a policy from a fitted classifier or pipeline, or from any function of contexts or of original columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Array, Floats, settle
from cael.errors import CaelError, InputError, PolicyError
from cael.policies.labelled import Inputs, Names, by_position, is_frame, labelled, plain, shown
from cael.policies.policy import Policy

if TYPE_CHECKING:
    from cael.log.batch import Batch


@final
@dataclass(frozen=True, eq=False, repr=False)
class FromModel(Policy):
    """A policy from a fitted classifier of actions (a scikit-learn Pipeline, too), or from any function.

    A model that was trained on a frame is given the same columns of the log's table, as they were. One that was trained
    on an array, and a function, are given the contexts (b, d); columns= names columns of the table, which a function
    then gets as a frame. The classes of a model are labels of actions, in any order; actions it never saw get
    probability 0. A model without predict_proba chooses what it predicts.

    A function returns probabilities (b, k), a frame or a mapping {action: (b,)}, or the label (b,) that it chooses.
    actions= says in which order an array has the actions.

    name: for tables. names, inputs: of the columns that the model was trained on. offset: of the first row in them.

    >>> FromModel(lambda contexts: np.full((len(contexts), 2), 0.5)).complete
    True
    """

    model: Any
    actions: Sequence[Any] | None = field(default=None, kw_only=True)
    columns: Sequence[str] | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    names: Names | None = field(default=None, kw_only=True)
    inputs: Inputs | None = field(default=None, kw_only=True)
    offset: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.model, type) or not (callable(self.model) or self._answers):
            kind = f"{self.model.__name__} class" if isinstance(self.model, type) else type(self.model).__name__
            raise InputError(
                f"{self!r} is a {kind}: expected a function of contexts (b, d) -> (b, k), a fitted classifier (an "
                "object with predict_proba or predict), or a cael policy."
            )
        if isinstance(self.columns, str):
            settle(self, columns=(self.columns,))
        self._need_fitted()

    def __repr__(self) -> str:
        return self.name or f"FromModel({getattr(self.model, '__name__', None) or type(self.model).__name__})"

    def _need_fitted(self) -> None:
        if self._answers and not hasattr(self.model, "classes_"):
            if hasattr(self.model, "predict_proba"):
                raise PolicyError(f"policy {self!r} has predict_proba but no classes_: is the model trained?")
            raise PolicyError(
                f"policy {self!r} predicts numbers and has no classes_: a policy is a classifier of actions. A "
                "regressor of rewards is an outcome model, as in cael.DR(outcome=cael.SklearnOutcome(model)); scores "
                "of the actions go to cael.Softmax or cael.EpsilonGreedy."
            )

    @property
    def _answers(self) -> bool:
        """Whether it is asked as a model of scikit-learn's kind is."""
        return hasattr(self.model, "predict") or hasattr(self.model, "predict_proba")

    @property
    def learned(self) -> bool:  # type: ignore[override]
        """Whether a model was trained."""
        return self.fitted

    @property
    def fitted(self) -> bool:
        """Whether it is a trained model."""
        return hasattr(self.model, "classes_")

    @property
    def wanted(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of the log's table that it is given; none: the contexts."""
        if self.columns is not None:
            return tuple(self.columns)
        return tuple(map(str, getattr(self.model, "feature_names_in_", ())))

    def matched(self, names: Names) -> Policy:
        policy = replace(self, names=names, inputs=names.inputs)
        if policy.fitted:
            policy._classes(names)
        return policy

    def reading(self, inputs: Inputs, offset: int) -> FromModel:
        """The policy on rows of another table, of which the first has this number."""
        return replace(self, inputs=inputs, offset=offset)

    def probabilities(self, batch: Batch) -> Floats:
        names = self.names or Names(tuple(range(batch.n_actions)))
        x = self._input(batch)
        if hasattr(self.model, "predict_proba"):
            return self._placed(self._asked(self.model.predict_proba, x), len(batch), names)
        answer = self._asked(self.model.predict if self.fitted else self.model, x)
        return self._table(answer, len(batch), names)

    def _input(self, batch: Batch) -> Any:
        """The original columns as a frame, or the contexts (b, d)."""
        if not self.wanted:
            return self._contexts(batch)
        inputs = self.inputs
        missing = list(self.wanted) if inputs is None else [name for name in self.wanted if name not in inputs.names]
        if inputs is None or missing:
            has = "is of arrays without names" if inputs is None else f"has {shown(inputs.names)}"
            raise PolicyError(
                f"{self!r}: expected the columns that the model was trained on, {shown(self.wanted)}; the log {has}, "
                f"without {shown(missing)}. Read the log from a table that has them (cael.read), or give a frame as "
                "the contexts of LoggedData."
            )
        rows = batch.rows
        if self.offset:
            rows = batch.row_numbers - self.offset
        return inputs.frame(self.wanted, rows)

    def _contexts(self, batch: Batch) -> Floats:
        expected = getattr(self.model, "n_features_in_", batch.contexts.shape[1])
        if expected != batch.contexts.shape[1]:
            raise PolicyError(
                f"{self!r}: the model was trained on {expected} columns without names, and the log has "
                f"{batch.contexts.shape[1]} contexts. Train it on a frame with named columns, and it is given "
                "these columns of the log; or name the contexts (contexts=, --contexts)."
            )
        return batch.contexts

    def _asked(self, ask: Callable[[Any], Any], x: Any) -> Any:
        """What the model answers; whatever it raises is an error about the policy and not a traceback."""
        try:
            answer = ask(x)
            if np.iscomplexobj(answer):  # numpy would drop the imaginary parts
                raise TypeError("the probabilities are complex numbers")
            return answer
        except CaelError:
            raise
        except (Exception, SystemExit) as error:
            columns = f" with the columns {shown(self.wanted)}" if self.wanted else ""
            what = f"a frame{columns}" if self.wanted else "contexts"
            raise PolicyError(
                f"policy {self!r} failed on {what} of shape {tuple(x.shape)}: {reason(error)}. It must take what it is "
                "given here: train it on these columns, or say which columns it takes with "
                "cael.FromModel(model, columns=[...])."
            ) from error

    def _classes(self, names: Names) -> Array:
        """The action number of each class of the model."""
        return names.numbers(np.asarray(self.model.classes_), f"{self!r}: the classes of the model")

    def _placed(self, p: Any, rows: int, names: Names) -> Floats:
        """(b, k) from the probabilities of the classes."""
        p, classes = self._numbers(p), self._classes(names)
        if p.shape != (rows, len(classes)):
            raise PolicyError(
                f"{self!r}: predict_proba must give one probability for each of the {len(classes)} classes_ of the "
                f"model, shape {(rows, len(classes))}; got {p.shape}."
            )
        table = np.zeros((rows, len(names.actions)))
        table[:, classes] = p
        return table

    def _table(self, answer: Any, rows: int, names: Names) -> Floats:
        """(b, k) from what a function answers."""
        if isinstance(answer, Mapping) or is_frame(answer) or self.actions is not None:
            array, labels = labelled(answer, self.actions)
            assert labels is not None
            within = replace(names, count=rows, rows=None, inputs=None)
            return np.asarray(within.arranged(array, labels, repr(self)), dtype=np.float64)
        array = np.asarray(answer)
        if array.ndim == 1 and len(array) == rows and (array.dtype.kind in "iuUOT" or self.fitted):
            table = np.zeros((rows, len(names.actions)))
            table[np.arange(rows), names.numbers(array, repr(self))] = 1.0
            return table
        if names.hidden:
            raise PolicyError(by_position(repr(self), names))
        return self._numbers(array)

    def _numbers(self, answer: Any) -> Floats:
        try:
            return np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"policy {self!r} must give probabilities, which are numbers, in rows of one length: {reason(error)}."
            ) from error


def reason(error: BaseException) -> str:
    text = " ".join(str(plain(error)).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
