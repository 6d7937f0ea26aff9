"""Estimators: frozen settings with one verb, `estimate(log, policy)`. Its names are those of `cael.common.public`."""

from typing import TYPE_CHECKING

from cael.common.lazy import lazily
from cael.estimators.estimator import Estimator as Estimator

if TYPE_CHECKING:
    from cael.common.public import *  # noqa: F403
else:

    def _is_here(value):
        return isinstance(value, type) and issubclass(value, Estimator) and value.__module__.startswith(__name__)

    __getattr__, __dir__ = lazily(__name__, "cael.common.public", _is_here)
