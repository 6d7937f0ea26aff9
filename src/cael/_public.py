"""The public names of the package, and where they come from."""

from cael import codes, examples, io, report, testing, worlds
from cael._version import __version__
from cael.audit_checks import Frequency, Period
from cael.auditing import Audit, audit
from cael.calibration import Calibration, CalibrationRow, calibrate
from cael.comparison import Comparison, compare
from cael.diagnostics import Candidate, Diagnostics, EmbeddingFacts, TrainingFacts
from cael.embedding import (
    AELMIPS,
    CAEL,
    CAELMIPS,
    Auto,
    Growth,
    NetworkDM,
    NetworkOutcome,
    NetworkSettings,
    Objective,
    Training,
)
from cael.errors import CaelError, InputError, LogError, NeedsError, PolicyError, SupportError
from cael.estimate import Estimate, ScoreRange
from cael.estimators import (
    DM,
    DR,
    IPS,
    MIPS,
    SLOPE,
    SNDR,
    SNIPS,
    BaselineIPS,
    DRos,
    Estimator,
    LoggedMean,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
)
from cael.evaluation import Evaluation, evaluate
from cael.factorised import FactorisedSoftmax
from cael.inference import Interval
from cael.io import read
from cael.log import Batch, LoggedData
from cael.mixture import Mixture
from cael.outcomes import Boosting, FittedOutcome, FixedOutcome, Logistic, OutcomeModel, Ridge, Sampled, SklearnOutcome
from cael.overlap import Overlap
from cael.planning import Plan, PlanOption, plan
from cael.policy import FromModel, LoggedOnly, Policy, Tabular, Uniform
from cael.problem import Problem
from cael.propensity import EstimatedLogging, estimate_logging
from cael.scored import EpsilonGreedy, Softmax
from cael.segmentation import Segment, Segments, segments
from cael.sparse import TopK
from cael.streaming import ScannedLog, scan
from cael.support import Support
from cael.verdict import Check, Thresholds, Verdict

__all__ = [
    "AELMIPS",
    "CAEL",
    "CAELMIPS",
    "DM",
    "DR",
    "IPS",
    "MIPS",
    "SLOPE",
    "SNDR",
    "SNIPS",
    "Audit",
    "Auto",
    "BaselineIPS",
    "Batch",
    "Boosting",
    "CaelError",
    "Calibration",
    "CalibrationRow",
    "Candidate",
    "Check",
    "Comparison",
    "DRos",
    "Diagnostics",
    "EmbeddingFacts",
    "EpsilonGreedy",
    "Estimate",
    "EstimatedLogging",
    "Estimator",
    "Evaluation",
    "FactorisedSoftmax",
    "FittedOutcome",
    "FixedOutcome",
    "Frequency",
    "FromModel",
    "Growth",
    "InputError",
    "Interval",
    "LogError",
    "LoggedData",
    "LoggedMean",
    "LoggedOnly",
    "Logistic",
    "Mixture",
    "NeedsError",
    "NetworkDM",
    "NetworkOutcome",
    "NetworkSettings",
    "Objective",
    "OutcomeModel",
    "Overlap",
    "Period",
    "Plan",
    "PlanOption",
    "Policy",
    "PolicyError",
    "Problem",
    "Ridge",
    "Sampled",
    "ScannedLog",
    "ScoreRange",
    "Segment",
    "Segments",
    "SklearnOutcome",
    "Softmax",
    "SubGaussianDR",
    "SubGaussianIPS",
    "Support",
    "SupportError",
    "SwitchDR",
    "Tabular",
    "Thresholds",
    "TopK",
    "Training",
    "TrainingFacts",
    "Uniform",
    "Verdict",
    "__version__",
    "audit",
    "calibrate",
    "codes",
    "compare",
    "estimate_logging",
    "evaluate",
    "examples",
    "io",
    "plan",
    "read",
    "report",
    "scan",
    "segments",
    "testing",
    "worlds",
]
