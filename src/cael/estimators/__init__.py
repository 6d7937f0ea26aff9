"""Estimators: frozen settings with one verb, `estimate(log, policy)`."""

from cael.estimators.direct import DM
from cael.estimators.doubly_robust import DR, SNDR, DRos, SubGaussianDR, SwitchDR
from cael.estimators.estimator import Estimator
from cael.estimators.marginal import MIPS
from cael.estimators.selection import SLOPE
from cael.estimators.weighting import IPS, SNIPS, BaselineIPS, LoggedMean, SubGaussianIPS

__all__ = [
    "DM",
    "DR",
    "IPS",
    "MIPS",
    "SLOPE",
    "SNDR",
    "SNIPS",
    "BaselineIPS",
    "DRos",
    "Estimator",
    "LoggedMean",
    "SubGaussianDR",
    "SubGaussianIPS",
    "SwitchDR",
]
