"""The public names of the package, and where they come from."""

from cael import io, report, testing, worlds
from cael.common.version import __version__
from cael.datasets import examples
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
from cael.embedding.exact import codes
from cael.errors import CaelError, InputError, LogError, NeedsError, PolicyError, SupportError
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
from cael.estimators.problem import Problem
from cael.inference.diagnostics import Candidate, Diagnostics, EmbeddingFacts, TrainingFacts
from cael.inference.estimate import Estimate, ScoreRange
from cael.inference.intervals import Interval
from cael.inference.overlap import Overlap
from cael.io import read
from cael.judging.audit_checks import Frequency, Period
from cael.judging.audits import Audit, audit
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Check, Verdict
from cael.log.logged import Batch, LoggedData
from cael.log.scanned import ScannedLog, scan
from cael.outcomes import Boosting, FittedOutcome, FixedOutcome, Logistic, OutcomeModel, Ridge, Sampled, SklearnOutcome
from cael.policies.factorised import FactorisedSoftmax
from cael.policies.mixture import Mixture
from cael.policies.policy import FromModel, LoggedOnly, Policy, Tabular, Uniform
from cael.policies.propensity import EstimatedLogging, estimate_logging
from cael.policies.scored import EpsilonGreedy, Softmax
from cael.policies.support import Support
from cael.policies.topk import TopK
from cael.results.calibration import Calibration, CalibrationRow, calibrate
from cael.results.compare import compare
from cael.results.comparison import Comparison
from cael.results.evaluate import evaluate, panel
from cael.results.evaluation import Evaluation
from cael.results.planning import Plan, PlanOption, plan
from cael.results.segmentation import Segment, Segments
from cael.results.segments_of import segments

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
    "panel",
    "plan",
    "read",
    "report",
    "scan",
    "segments",
    "testing",
    "worlds",
]
