"""What `logging=` says about an estimated logging policy: "estimate", "estimate:MODEL", or a `LoggingModel`."""

from __future__ import annotations

from typing import Any

from cael.io.objects import attribute
from cael.policies.propensity import LoggingModel

WORD, NONE = "estimate", "none"


def logging_model(logging: Any) -> LoggingModel | None:
    """How the logging policy is to be estimated; None where it is not.

    >>> logging_model("estimate:boosting"), logging_model("dense:mu_*")
    (LoggingModel(model='boosting', folds=5, C=1.0, seed=0), None)
    """
    if isinstance(logging, LoggingModel):
        return logging
    if not isinstance(logging, str):
        return None
    word, colon, model = (part.strip() for part in logging.partition(":"))
    if word != WORD:
        return None
    if not colon:
        return LoggingModel()
    if model.startswith("python:"):
        what = f"logging={logging.strip()!r}"
        return LoggingModel(attribute(model.removeprefix("python:"), what, "python:models:classifier"))
    return LoggingModel(model)


def leaves_propensities(logging: Any) -> bool:
    """Whether a column of propensities is not looked at."""
    return logging_model(logging) is not None or (isinstance(logging, str) and logging.strip() == NONE)
