"""What a user's own file may hand to cael, for type checkers; it is run, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

import cael

LABELS = ("apple", "fig")


class Classifier:
    """As scikit-learn's, which has no types."""

    classes_ = np.array(LABELS)

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.str_]:
        return np.full(len(X), "fig")

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full((len(X), 2), 0.5)


def probabilities(contexts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {"apple": np.full(len(contexts), 0.5), "fig": np.full(len(contexts), 0.5)}


def chosen(contexts: NDArray[np.float64]) -> list[str]:
    return ["fig"] * len(contexts)


rng = np.random.default_rng(0)
visits = pl.DataFrame({
    "x_0": rng.normal(size=200),
    "action": rng.choice(LABELS, 200),
    "propensity": np.full(200, 0.5),
    "reward": rng.random(200),
})  # fmt: skip
log: cael.LoggedData = cael.read(visits)
frame = pl.DataFrame({"fig": np.full(200, 0.3), "apple": np.full(200, 0.7)})

estimate: cael.Estimate = cael.SNIPS().estimate(log, Classifier())
evaluation: cael.Evaluation = cael.evaluate(log, probabilities, learn=False)
comparison: cael.Comparison = cael.compare(
    log, {"model": Classifier(), "function": chosen, "frame": frame, "uniform": cael.Uniform()}, learn=False
)
values: list[float] = [
    float(cael.SNIPS().estimate(log, policy))
    for policy in (frame, pa.table(frame), {"apple": 0.4, "fig": 0.6}, ["fig"] * 200, np.full(200, "apple"))
]
tabular: cael.Policy = cael.Tabular(np.full((200, 2), 0.5), actions=LABELS)
model: cael.Policy = cael.FromModel(probabilities, columns=["x_0"])
choice: cael.Policy = cael.Choice(["fig"] * 200)
parts: cael.Segments = cael.segments(log, tabular, rng.integers(0, 2, 200), learn=False)
low, high = estimate.interval()
whole: dict[str, Any] = evaluation.to_dict()
