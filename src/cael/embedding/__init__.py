"""Learned embeddings. The modules that import torch are loaded when an estimator first needs them."""

from cael.embedding.auto import Auto
from cael.embedding.exact.flagship import CAEL
from cael.embedding.published.learned import AELMIPS, CAELMIPS, NetworkDM, NetworkOutcome
from cael.embedding.settings import Growth, NetworkSettings, Objective, Training

__all__ = [
    "AELMIPS",
    "CAEL",
    "CAELMIPS",
    "Auto",
    "Growth",
    "NetworkDM",
    "NetworkOutcome",
    "NetworkSettings",
    "Objective",
    "Training",
]
