"""Choice: the action that was chosen on each row, by its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Floats, frozen, settle
from cael.errors import NeedsError, PolicyError
from cael.policies.labelled import Labels, Names, counted, index_of
from cael.policies.policy import Policy
from cael.policies.support import Support
from cael.policies.topk import TopK

if TYPE_CHECKING:
    from cael.log.batch import Batch


@final
@dataclass(frozen=True, eq=False)
class Choice(Policy):
    """The action that a policy chooses on each row of the log, by its label: what `classifier.predict(X)` gives.

    chosen: (n,) labels, names or whole numbers; the rows of a series with labels of its own are matched by them.

    >>> Choice(["apple", "fig", "apple"])
    Choice(3 rows)
    """

    rows: ClassVar[Sequence[Any] | None] = None
    chosen: ArrayLike

    def __post_init__(self) -> None:
        rows, values = index_of(self.chosen), np.asarray(self.chosen)
        if values.ndim != 1 or len(values) == 0 or not is_label(values):
            raise PolicyError(
                "Choice needs one label of an action for each row, names or whole numbers; got "
                f"{values.dtype} of shape {values.shape}."
            )
        kept = values.astype(str) if values.dtype.kind == "O" else values
        settle(self, rows=rows, chosen=frozen(kept.astype(np.int64) if kept.dtype.kind == "f" else kept))

    def __repr__(self) -> str:
        return f"Choice({len(np.asarray(self.chosen))} rows)"

    def matched(self, names: Names) -> Policy:
        numbers = names.numbers(np.asarray(self.chosen), repr(self))[:, None]
        places = None if self.rows is None else names.places(Labels(None, self.rows), len(numbers), repr(self))
        numbers = numbers if places is None else numbers[places]
        return TopK(numbers, np.ones(numbers.shape), len(names.actions))

    def _listed(self, batch: Batch) -> Policy:
        """Of whole numbers, which may be asked without a log that knows its labels."""
        chosen = np.asarray(self.chosen)
        if chosen.dtype.kind not in "iu" or (self.rows is not None and not counted(self.rows)):
            raise NeedsError(f"{self!r} has labels that only a log can match: give it together with its log.")
        return TopK(chosen[:, None], np.ones((len(chosen), 1)), batch.n_actions)

    def probabilities(self, batch: Batch) -> Floats:
        return self._listed(batch).probabilities(batch)

    def support(self, batch: Batch) -> Support | None:
        return self._listed(batch).support(batch)


def is_label(values: Any) -> bool:
    """Whether an array holds names, or whole numbers."""
    if values.dtype.kind == "O":
        return all(isinstance(value, str | int) and not isinstance(value, bool) for value in values.tolist())
    return values.dtype.kind in "iuUT" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all()))
