"""One table of thresholds: every one of them is felt, and no module has another."""

import ast
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import cael
from cael import InputError, Thresholds
from cael.cli import main
from cael.engine.asking import as_engine_log, ask
from cael.experiments import broken as experiment
from cael.inference.diagnostics import Diagnostics, EmbeddingFacts, TrainingFacts, doubts, in_words
from cael.inference.estimate import reworded
from cael.judging.judge import judge
from cael.policies.fitted import LoggingFit
from cael.results.calibration import Calibration, CalibrationRow
from cael.results.evaluation import rests_on_little

SOURCE = Path(cael.__file__).parent
WORLD = cael.worlds.PaperWorld(n_actions=10, gamma=0.3)
LOG = WORLD.sample(3000, seed=0)
HARD = cael.worlds.PaperWorld(n_actions=60, gamma=-0.3)
HARD_LOG = HARD.sample(1000, seed=0)
INF = math.inf


def rebuilt(log=LOG, **changes):
    parts = {
        "contexts": log.contexts, "actions": log.actions, "rewards": log.rewards, "propensities": log.propensities,
        "n_actions": log.n_actions, **changes,
    }  # fmt: skip
    return cael.LoggedData(**parts)


def broken(condition):
    return experiment.CONDITIONS[condition](LOG, np.random.default_rng(0))[0]


def status(checks, name):
    return next(each.status for each in checks if each.name == name)


def judged(name, log=LOG, policy=WORLD.target, **fixed):
    """What a verdict's check says by given limits."""

    def observe(**limits):
        found = cael.evaluate(log, policy, learn=False, thresholds=Thresholds(**fixed, **limits))
        return status(found.verdict.checks, name)

    return observe


def audited(name, log=LOG, **fixed):
    def observe(**limits):
        return status(cael.audit(log, thresholds=Thresholds(**fixed, **limits)).checks, name)

    return observe


def related(name, **limits):
    """Whether the verdict on a log has the check at all; its weights are all 2."""
    propensities = np.where(LOG.actions > 4, 0.5, 0.1)
    policy = cael.LoggedOnly(2 * propensities)
    found = cael.evaluate(rebuilt(propensities=propensities), policy, learn=False, thresholds=Thresholds(**limits))
    return name in [check.name for check in found.verdict.checks]


def with_bias(bias):
    answer = ask(as_engine_log(LOG), {"": WORLD.target}, [cael.SNDR()], asked=("SNDR",))
    estimate = answer.of("SNDR", 0)
    bounded = dataclasses.replace(estimate, diagnostics=dataclasses.replace(estimate.diagnostics, bias_bound=0.1))
    found = judge(answer, 0, [bounded], "SNDR", thresholds=Thresholds(bias=bias))
    return status(found.checks, "bias")


def judged_as(name, headline, diagnostics, **limits):
    """What a check says of an estimate with other diagnostics."""
    answer = ask(as_engine_log(LOG), {"": WORLD.target}, [cael.SNDR(), cael.DM()], asked=("SNDR", "DM"))
    estimate = answer.of(headline, 0)
    changed = dataclasses.replace(estimate, diagnostics=dataclasses.replace(estimate.diagnostics, **diagnostics))
    return status(judge(answer, 0, [changed], headline, thresholds=Thresholds(**limits)).checks, name)


def plain_skewness(skewness):
    return judged_as("skewness", "SNDR", {"stderr_floor": None}, skewness=skewness)


def fitted(logging_error):
    fit = LoggingFit("softmax", 0.05, 1000)
    return judged_as("logging_fit", "SNDR", {"logging_fit": fit}, logging_error=logging_error)


def smoothed(name, **limits):
    facts = EmbeddingFacts(1.0, 1.0, 0.0, 0.5, 0.5, 1, 1.0, 0.0, (), 0.0, 0.0, 0.1, 1000, None)
    return judged_as(name, "SNDR", {"embedding": facts}, **limits)


def memoriser():
    from sklearn.tree import DecisionTreeClassifier

    good = LOG.rewards > np.median(LOG.rewards)
    return DecisionTreeClassifier(random_state=0).fit(LOG.contexts[good], LOG.actions[good])


def with_dropped_rows():
    rng = np.random.default_rng(0)
    columns = {"action": rng.integers(0, 2, 900), "reward": rng.random(900), "propensity": np.full(900, 0.5)}
    columns["reward"][:50] = np.nan
    return cael.io.open_log(pa.table(columns), drop_invalid=True).log


def without_effects(kind):
    """Rewards depend on the contexts alone; the logging policy is uniform, or looks at the contexts."""
    world = cael.worlds.PaperWorld(n_actions=10, gamma=0.3 if kind == "softmax" else 0.0)
    log = world.sample(3000, seed=0)
    rewards = log.contexts[:, 0] + np.random.default_rng(1).normal(size=3000)
    return cael.LoggedData(log.contexts, log.actions, rewards, logging=log.logging)


def clicks():
    rng = np.random.default_rng(0)
    return cael.LoggedData(None, rng.integers(0, 2, 1000), rng.random(1000) < 0.1, logging=[0.5, 0.5])


def heavy():
    return rebuilt(propensities=np.random.default_rng(0).random(3000))


def missing_action():
    rng = np.random.default_rng(0)
    return cael.LoggedData(None, rng.integers(0, 2, 2000), rng.normal(size=2000), logging=[0.5, 0.5, 0.0])


def moving_actions():
    rng = np.random.default_rng(0)
    chance = np.r_[np.full(1000, 0.6), np.full(1000, 0.4)]
    actions = (rng.random(2000) < chance).astype(int)
    propensities = np.where(actions == 1, chance, 1 - chance)
    return cael.LoggedData(None, actions, rng.normal(size=2000), propensities, n_actions=2)


def copied():
    rows = np.r_[np.arange(3000), np.arange(600)]
    return cael.LoggedData(
        LOG.contexts[rows], LOG.actions[rows], LOG.rewards[rows], LOG.propensities[rows], n_actions=10
    )


def copied_and_returning():
    """A tenth of the rows are copies, and a tenth have the context of another row and another action."""
    rows = np.r_[np.arange(3000), np.arange(600)]
    actions = LOG.actions[rows].copy()
    actions[3000:3300] = (actions[3000:3300] + 1) % 10
    return cael.LoggedData(LOG.contexts[rows], actions, LOG.rewards[rows], LOG.propensities[rows], n_actions=10)


def certain_rows():
    return rebuilt(propensities=np.where(np.arange(3000) % 4 == 0, 1.0, LOG.propensities))


def calibrated(coverage):
    row = CalibrationRow("SNDR", 0.1, 0.0, 0.90, 0.02, 0.9, "additive", 0.4, 0)
    found = Calibration((row,), ("additive",), 100, 1000, 0.95, True)
    by_argument = found.check("SNDR", Thresholds(coverage=coverage)).status
    by_field = dataclasses.replace(found, thresholds=Thresholds(coverage=coverage)).check("SNDR").status
    assert by_argument == by_field
    return by_argument


def weights(**facts):
    return Diagnostics(
        **{"n": 1000, "effective_sample_size": 500.0, "max_weight": 5.0, "mean_weight": 0.9, "mean_weight_z": -2.0,
           "tail_index": 0.5, "unsupported_mass": 0.005, **facts}
    )  # fmt: skip


def trained():
    return weights(training=TrainingFacts(1, {}, False, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, True))


def says(part, diagnostics):
    return lambda **limits: any(part in each for each in doubts(diagnostics, Thresholds(**limits)))


def windows(**limits):
    return (
        "beyond chance"
        in cael.segments(LOG, WORLD.target, windows=4, thresholds=Thresholds(**limits), learn=False).sentence()
    )


PAIRS = {
    "largest_share": judged("largest_share"),
    "skewness": lambda skewness: plain_skewness(skewness),
    "steadied_skewness": judged("skewness"),
    "reward_tail": judged("reward_tail", rebuilt(rewards=np.random.default_rng(0).pareto(3.0, 3000))),
    "hidden_weight": judged("tail_index", HARD_LOG, HARD.target),
    "logging_error": lambda logging_error: fitted(logging_error),
    "tail_index": judged("tail_index", heavy(), cael.Uniform(10)),
    "mean_weight_z": judged("mean_weight"),
    "unsupported_mass": judged("support", missing_action(), [0.49, 0.49, 0.02]),
    "disagreement": judged("disagreement", disagreement_gap=(0.0, 0.0)),
    "disagreement_gap": judged("disagreement", disagreement=(0.0, 0.0)),
    "trained_here": judged("trained_here", LOG, memoriser()),
    "bias": lambda bias: with_bias(bias),
    "dropped": judged("dropped", with_dropped_rows(), [0.5, 0.5]),
    "misplaced": judged("frequencies", broken("propensities of another version, whole policy")),
    "surprise": judged("surprise", broken("actions shuffled, logging policy known")),
    "decile_gap": audited("calibration", broken("actions shuffled, logging policy known")),
    "drift": judged("drift", broken("rewards that drift")),
    "action_drift": audited("action_drift", moving_actions()),
    "sums": audited("sums", rebuilt(propensities=LOG.propensities / 2)),
    "rounding": audited("rounding", rebuilt(propensities=np.maximum(LOG.propensities.round(3), 0.001))),
    "duplicates": audited("duplicates", copied()),
    "thin_support": audited("support", rebuilt(n_actions=11)),
    "certain": audited("support", certain_rows()),
    "coverage": lambda coverage: calibrated(coverage),
}
LESS = {
    "successes": judged("successes", clicks(), [0.5, 0.5]),
    "smoothed_rows": lambda **limits: smoothed("effective_rows", **limits),
    "unsmoothed_rows": lambda **limits: smoothed("unsmoothed_rows", **limits),
}
SINGLE = {
    "effective_share": (says("effective sample size", weights()), 0.1, 0.9),
    "mean_weight_gap": (says("far from 1", trained()), 0.2, 0.05),
    "least_count": (audited("frequencies", rebuilt()), 50.0, 1e9),
    "duplicates_z": (audited("duplicates", copied()), 5.0, 1e9),
    "duplicates_alike": (audited("duplicates", copied_and_returning()), 0.1, 0.9),
    "few_rows": (audited("support"), 10.0, 1000.0),
    "p_value": (audited("reward_drift", broken("rewards that drift")), 0.001, 1e-300),
    "drift_p_value": (judged("drift", drift=(0.0, INF)), 1e-9, 0.999999),
    "column_p_value": (judged("propensity_column", rebuilt()), 1e-300, 0.01),
    "effect_p_value": (judged("action_effect", LOG.take(np.arange(600))), 1e-300, 0.05),
    "effect_half_width": (judged("action_effect", without_effects("uniform")), 0.14, 0.001),
    "vouched_z": (judged("action_effect", without_effects("softmax")), 6.0, 1e9),
    "related_rows": (lambda **limits: related("action_effect", **limits), 500.0, 1e9),
    "related_count": (lambda **limits: related("action_effect", **limits), 20.0, 1e9),
    "related_spread": (lambda **limits: related("propensity_column", **limits), 0.05, 1e9),
    "drift_rows": (judged("drift"), 100.0, 1e9),
    "constant_weight": (lambda **limits: related("mean_weight", **limits), 0.001, 1e9),
    "segments_p_value": (windows, 1e-12, 0.9999),
}


def test_every_threshold_is_covered():
    assert {"effective_rows", *LESS, *PAIRS, *SINGLE} == {each.name for each in dataclasses.fields(Thresholds)}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_decides_between_pass_warning_and_failure(name):
    observe = PAIRS[name]
    assert [observe(**{name: pair}) for pair in ((INF, INF), (0.0, INF), (0.0, 0.0))] == ["pass", "warn", "fail"]


@pytest.mark.parametrize("name", LESS)
def test_of_some_numbers_less_is_worse(name):
    observe = LESS[name]
    assert [observe(**{name: pair}) for pair in ((0.0, 0.0), (INF, 0.0), (INF, INF))] == ["pass", "warn", "fail"]


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_number_decides_what_it_states(name):
    observe, one, other = SINGLE[name]
    assert observe(**{name: one}) != observe(**{name: other})


def test_an_audit_shares_the_thresholds_of_the_verdict():
    for name, check, log in (
        ("skewness", "rewards", LOG),
        ("misplaced", "frequencies", broken("propensities of another version, whole policy")),
        ("surprise", "surprise", broken("actions shuffled, logging policy known")),
    ):
        observe = audited(check, log)
        assert (observe(**{name: (INF, INF)}), observe(**{name: (0.0, INF)})) == ("pass", "warn")


@pytest.mark.parametrize(
    ("limits", "part"),
    [
        ({"effective_rows": (501.0, 20.0)}, "carry the information of about 500 (effective sample size)"),
        ({"largest_share": (0.005, 0.3)}, "One row carries"),
        ({"mean_weight_z": (1.9, 5.0)}, "-2.0 standard errors"),
        ({"tail_index": (0.4, 1.0)}, "heavy tail"),
        ({"unsupported_mass": (0.004, 0.1)}, "never plays"),
    ],
)
def test_the_caution_of_the_verdict_is_the_warning_of_the_estimate(limits, part):
    assert doubts(weights(), Thresholds()) == ()
    (sentence,) = doubts(weights(), Thresholds(**limits))
    assert part in sentence


def test_words_are_exchanged_and_what_estimators_add_is_kept():
    first = dataclasses.replace(weights(), warnings=("SLOPE chose IPS.",))
    strict, mild = Thresholds(effective_rows=(1e9, 20)), Thresholds()
    told = in_words(first, strict)
    assert len(told.warnings) == 2
    assert in_words(told, strict) == told
    assert in_words(told, mild) == first
    estimate = cael.DM().estimate(LOG, WORLD.target)
    assert reworded(estimate, strict) is estimate  # a model has no weights to speak of


def printed(thing):
    out = io.StringIO()
    Console(file=out, width=300).print(thing)
    return out.getvalue()


STRICT = Thresholds(effective_rows=(1e9, 20.0))


def test_one_threshold_is_felt_by_warnings_verdict_plan_report_and_comparison():
    told = "carry the information of"
    calm, strict = (cael.evaluate(LOG, WORLD.target, learn=False, thresholds=each) for each in (None, STRICT))
    assert told not in printed(calm)
    assert (calm.verdict.level, strict.verdict.level) == ("ok", "caution")
    assert strict.verdict.thresholds == STRICT
    assert all(told in " ".join(strict[name].diagnostics.warnings) for name in ("IPS", "SNIPS", "DR", "SNDR"))
    assert strict["LoggedMean"].diagnostics.warnings == ()
    assert told in " ".join(strict.lift.diagnostics.warnings)
    assert told in cael.report.render(strict)
    assert "effective_rows (1000000000.0, 20.0)" in cael.report.render(strict)
    assert "effective_rows (" not in cael.report.render(calm)
    compared = cael.compare(LOG, {"a": WORLD.target}, thresholds=STRICT, learn=False)
    assert compared.verdict.level == "caution"
    assert told in " ".join(compared["a"].estimate.diagnostics.warnings)
    assert [cael.plan(LOG, WORLD.target, thresholds=each).status for each in (None, STRICT)] == ["pass", "warn"]


def test_a_refusal_is_felt_by_figures_and_by_the_cost_of_a_plan():
    refuse = Thresholds(effective_rows=(1e9, 1e8))
    estimate = cael.SNDR().estimate(LOG, WORLD.target)
    assert not rests_on_little(estimate, Thresholds())
    assert rests_on_little(estimate, refuse)
    found = cael.evaluate(LOG, WORLD.target, learn=False)
    verdict = dataclasses.replace(found.verdict, thresholds=refuse)
    pages = [cael.report.render(each) for each in (found, dataclasses.replace(found, verdict=verdict))]
    grey = [page.count(' doubtful"') + page.count('"doubtful"') for page in pages]
    assert grey[0] < grey[1]
    costs = [cael.plan(LOG, WORLD.target, thresholds=each).options[-1].cost for each in (None, refuse)]
    assert costs[0] is not None
    assert costs[1] is None


def test_a_streamed_log_feels_the_same_thresholds(tmp_path):
    from tests.streaming.logs import K, table, write

    scanned = cael.scan(write(tmp_path / "log", table(600), [300], 90), n_actions=K)
    found = cael.evaluate(scanned, "p", learn=False, thresholds=STRICT)
    assert found.verdict.thresholds == STRICT
    assert "carry the information of" in " ".join(found["SNIPS"].diagnostics.warnings)
    compared = cael.compare(scanned, {"a": "p"}, thresholds=STRICT, learn=False)
    assert compared.verdict.thresholds == STRICT
    assert "carry the information of" in " ".join(compared["a"].estimate.diagnostics.warnings)
    parts = [
        cael.segments(scanned, "p", windows=4, thresholds=Thresholds(segments_p_value=p), learn=False)
        for p in (1e-12, 0.9999)
    ]
    assert ["beyond chance" in each.sentence() for each in parts] == [False, True]


def test_what_was_moved_is_in_the_json():
    moved = Thresholds(effective_rows=(1000.0, 200.0), drift=(0.5, 0.7), p_value=0.01, bias=(1.0, INF))
    assert Thresholds().to_dict() == {}
    assert json.loads(json.dumps(moved.to_dict())) == {
        "effective_rows": [1000.0, 200.0], "drift": [0.5, 0.7], "p_value": 0.01, "bias": [1.0, None],
    }  # fmt: skip
    with pytest.raises(InputError, match="one number"):
        Thresholds(least_count=(1, 2))
    with pytest.raises(InputError, match="two numbers"):
        Thresholds(drift=0.5)


def run(capsys, *arguments):
    code = 0
    try:
        main(list(arguments))
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def file(capsys, tmp_path):
    path = str(tmp_path / "log.npz")
    run(capsys, "simulate", path, "--rows", "600", "--actions", "6", "--gamma", "0.3")
    return path


def test_the_command_takes_thresholds(capsys, file, tmp_path):
    strict = ("--threshold", "effective_rows=1e9,1e8")
    np.save(tmp_path / "other.npy", np.arange(1, 7) / 21)
    policy = f"other={tmp_path / 'other.npy'}"
    for arguments in (
        ("evaluate", file, "--no-learn"),
        ("plan", file),
        ("compare", file, "--policy", policy, "--no-learn"),
    ):
        assert run(capsys, *arguments)[0] == 0
        assert run(capsys, *arguments, *strict)[0] == 3
    code, out, _ = run(capsys, "evaluate", file, "--no-learn", "--format", "json", *strict, "--threshold", "drift=1,2")
    assert json.loads(out)["verdict"]["thresholds"] == {"effective_rows": [1e9, 1e8], "drift": [1.0, 2.0]}
    assert run(capsys, "audit", file)[0] == 0
    assert run(capsys, "audit", file, "--threshold", "few-rows=1000", "--threshold", "thin_support=0,0")[0] == 3
    code, _, err = run(capsys, "audit", file, "--threshold", "few=1")
    assert code == 1
    assert "there is no threshold 'few'; there are: effective_rows, smoothed_rows," in err
    code, _, err = run(capsys, "plan", file, "--threshold", "drift")
    assert code == 1
    assert "NAME=CAUTION,REFUSE" in err


def test_the_configuration_file_has_a_table_of_thresholds(capsys, file, tmp_path):
    config = tmp_path / "cael.toml"
    config.write_text("learn = false\n[thresholds]\neffective_rows = [1e9, 1e8]\np_value = 0.01\n")
    with_config = ("evaluate", file, "--config", str(config))
    code, out, _ = run(capsys, *with_config, "--format", "json")
    assert code == 3
    assert json.loads(out)["verdict"]["thresholds"] == {"effective_rows": [1e9, 1e8], "p_value": 0.01}
    code, out, _ = run(capsys, *with_config, "--threshold", "effective_rows=100,20", "--format", "json")
    assert code == 0
    assert json.loads(out)["verdict"]["thresholds"] == {"p_value": 0.01}  # the line wins, the rest of the table stays
    config.write_text("[thresholds]\nsize = 3\n")
    assert "there is no threshold 'size'" in run(capsys, *with_config)[2]
    config.write_text("thresholds = 3\n")
    assert "[thresholds] must be a table" in run(capsys, *with_config)[2]


FORBIDDEN = {
    "LOW_ESS", "LOW_ESS_SHARE", "ONE_ROW", "MEAN_WEIGHT_Z", "HEAVY_TAIL", "UNSUPPORTED", "LEAST_COUNT", "UNRELATED",
    "NO_EFFECT", "MISPLACED", "NATS", "FEW_ROWS", "FAR_FROM_ONE",
}  # fmt: skip


def test_no_other_module_defines_a_threshold():
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "thresholds.py":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert not names & FORBIDDEN, path
        calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")}
        assert "Thresholds" not in calls, f"{path} makes thresholds of its own: take them as an argument"
