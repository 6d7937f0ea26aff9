"""Learned embeddings. The modules that import torch are loaded when an estimator first needs them."""

from cael.embedding.estimators import AELMIPS, CAELMIPS, NetworkDM, NetworkOutcome
from cael.embedding.settings import NetworkSettings, Objective, Training

__all__ = ["AELMIPS", "CAELMIPS", "NetworkDM", "NetworkOutcome", "NetworkSettings", "Objective", "Training"]
