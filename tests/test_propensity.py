"""The logging policy, estimated: calibrated, never sure by memory, and never without a warning."""

import numpy as np
import pandas as pd
import pytest

import cael
from cael.experiments.untold import WORLDS
from cael.inference import reach
from cael.policies.policy import probabilities


def bare(log):
    return cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=log.n_actions)


def with_estimate(log, **how):
    """A log without propensities, with those that are estimated."""
    logging = cael.estimate_logging(log, **how)
    return cael.LoggedData(log.contexts, log.actions, log.rewards, logging=logging, n_actions=log.n_actions)


def table_of(policy, log):
    return np.concatenate([probabilities(policy, batch) for batch in log.batches(width=log.n_actions)])


@pytest.fixture(scope="module")
def world():
    return cael.worlds.PaperWorld(n_actions=10, gamma=1.0)


@pytest.fixture(scope="module")
def estimated(world):
    log = world.sample(4000, 0)
    return log, cael.estimate_logging(bare(log))


def test_it_is_a_policy(estimated):
    log, found = estimated
    cael.testing.check_policy(found, bare(log))


def test_it_is_near_the_logging_policy_that_it_can_represent(estimated):
    """PaperWorld's logging policy is a softmax of something smooth in the contexts."""
    log, found = estimated
    error = np.abs(table_of(found, bare(log)) - table_of(log.logging, log)).mean()
    frequencies = np.bincount(log.actions, minlength=10) / len(log)
    assert error < 0.3 * np.abs(frequencies - table_of(log.logging, log)).mean()
    assert found.loss < found.loss_frequencies


def test_it_is_calibrated(estimated):
    """Among the (row, action) pairs with an estimated probability near p, the action was taken about p of the time."""
    log, found = estimated
    p = table_of(found, bare(log)).ravel()
    taken = (log.actions[:, None] == np.arange(10)).ravel()
    order = np.argsort(p)
    for part in np.array_split(order, 10):
        expected, spread = p[part].mean(), np.sqrt(p[part].mean() / len(part))
        assert abs(taken[part].mean() - expected) < 4 * spread


def test_without_information_it_falls_back_to_the_frequencies():
    rng = np.random.default_rng(0)
    actions = rng.choice(4, 600, p=[0.5, 0.3, 0.1, 0.1])
    log = cael.LoggedData(rng.normal(size=(600, 20)), actions, rng.normal(size=600))
    found = cael.estimate_logging(log)
    assert found.strength * (1 - found.floor) < 0.35
    assert table_of(found, log).max() < 0.75


def test_rows_are_predicted_by_models_that_did_not_see_them():
    """With as many contexts as rows a model knows every row by heart; held-out predictions do not."""
    rng = np.random.default_rng(0)
    log = cael.LoggedData(rng.normal(size=(60, 80)), rng.integers(0, 3, 60), rng.normal(size=60))
    found = cael.estimate_logging(log, C=1e6)
    logged = table_of(found, log)[np.arange(60), log.actions]
    assert logged.mean() < 0.5


def test_an_action_that_a_fold_does_not_hold_keeps_a_positive_probability():
    actions = np.array([0] * 50 + [1] * 49 + [2])
    log = cael.LoggedData(np.linspace(-1, 1, 100)[:, None], actions, np.arange(100.0))
    p = table_of(cael.estimate_logging(log), log)
    assert (p > 0).all()
    assert p[99, 2] < 0.1


def test_clusters_stay_in_one_fold():
    rng = np.random.default_rng(0)
    log = cael.LoggedData(
        rng.normal(size=(90, 1)), rng.integers(0, 2, 90), rng.normal(size=90), clusters=np.arange(90) // 9
    )
    found = cael.estimate_logging(log)
    assert all(len(set(found._fold[9 * g : 9 * g + 9])) == 1 for g in range(10))


def test_settings_are_checked(estimated):
    log, _ = estimated
    with pytest.raises(cael.InputError, match="C must be a positive number"):
        cael.estimate_logging(log, C=0.0)
    with pytest.raises(cael.InputError, match="folds must be a whole number >= 2"):
        cael.estimate_logging(log, folds=1)


def frame(world, n=1500):
    log = world.sample(n, 0)
    columns = {f"x_{j}": log.contexts[:, j] for j in range(log.contexts.shape[1])}
    return pd.DataFrame({"action": log.actions, "reward": log.rewards, "propensity": log.propensities, **columns})


def test_a_log_without_propensities_is_read_with_a_plain_warning(world):
    told = frame(world).drop(columns="propensity")
    table = cael.io.open_log(told)
    assert isinstance(table.log.logging, cael.EstimatedLogging)
    assert "There are no logged propensities: they were estimated from the 5 context numbers" in table.warnings[0]
    with pytest.warns(UserWarning, match="no logged propensities"):
        cael.read(told)
    truth = world.value(world.target)
    assert abs(cael.SNDR().estimate(table.log, world.target).value - truth) < 1.0


def test_the_verdict_and_the_audit_know_that_propensities_were_estimated(world):
    log = cael.io.open_log(frame(world).drop(columns="propensity")).log
    found = cael.evaluate(log, world.target)
    assert found.verdict.level != "ok"
    assert "The propensities were estimated, not logged" in " ".join(found.verdict.reasons)
    assert cael.audit(log)["propensities"].status == "warn"


def test_it_can_be_asked_for_and_done_without(world):
    assert cael.io.open_log(frame(world)).warnings == ()
    assert cael.io.open_log(frame(world), logging="estimate").warnings != ()
    none = cael.io.open_log(frame(world), logging="none")
    assert (none.log.propensities, none.warnings) == (None, ())


def test_without_contexts_the_frequencies_are_all_there_is(world):
    table = cael.io.open_log(frame(world)[["action", "reward"]])
    assert "from the frequencies of the actions alone" in table.warnings[0]
    counts = np.bincount(table.log.actions, minlength=10) + 0.5
    assert table_of(table.log.logging, table.log)[0] == pytest.approx(counts / counts.sum())


def test_a_scanned_log_is_told_how_to_estimate_its_logging_policy():
    with pytest.raises(cael.InputError, match=r"takes a log in memory; got ScannedLog.*logging='estimate'"):
        cael.estimate_logging(cael.scan(cael.examples.path()))


def drawn(n, k, shape, seed=0):
    """A log whose logging policy is a softmax of that shape of the contexts, and its probabilities (n, k)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    lean = rng.normal(size=(4, k))
    scores = {
        "linear": 0.7 * x @ lean,
        "products": 0.7 * (x * x[:, [1, 2, 3, 0]]) @ lean,
        "steps": 2.0 * (x > 0)[:, [0]] * lean[0] + 2.0 * ((x[:, [1]] > 0) ^ (x[:, [2]] > 0)) * lean[1],
    }[shape]
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    actions = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return cael.LoggedData(x, actions, rng.normal(size=n), n_actions=k), p


@pytest.mark.parametrize(
    ("shape", "family"), [("linear", "logistic"), ("products", "logistic with products"), ("steps", "boosting")]
)
def test_the_family_that_holds_the_logging_policy_is_chosen_and_nearest(shape, family):
    log, p = drawn(4000, 4, shape)
    found = cael.estimate_logging(log)
    assert found.family == family == min(found.tried, key=lambda pair: pair[1])[0]
    assert [name for name, _ in found.tried] == ["logistic", "logistic with products", "boosting"]
    off = {
        model: np.abs(table_of(cael.estimate_logging(log, model=model), log) - p).mean()
        for model in ("logistic", "products", "boosting")
    }
    chosen = np.abs(table_of(found, log) - p).mean()
    assert chosen == pytest.approx(min(off.values()))


def test_boosting_is_for_few_actions_and_enough_rows():
    few, _ = drawn(390, 3, "steps")
    many, _ = drawn(1000, 31, "linear")
    most, _ = drawn(1000, 30, "linear")
    assert "boosting" not in dict(cael.estimate_logging(few).tried)
    assert "boosting" not in dict(cael.estimate_logging(many).tried)
    assert "boosting" in dict(cael.estimate_logging(most).tried)
    assert cael.estimate_logging(many, model="boosting").family == "boosting"  # where it is asked for by name


def test_a_floor_keeps_tails_of_a_wrong_model_from_making_large_weights():
    """Epsilon-greedy: a softmax that is sure of the best action believes too little in the others."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 2))
    p = np.full((4000, 3), 0.1) + 0.7 * ((x @ [[3.0, 0.0, -3.0], [0.0, 3.0, 0.0]]).argmax(axis=1)[:, None] == range(3))
    actions = (p.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    log = cael.LoggedData(x, actions, rng.normal(size=4000), n_actions=3)
    found = cael.estimate_logging(log, model="logistic", C=100.0)
    table = table_of(found, log)
    assert found.floor > 0.1
    assert table.min() > 0.05
    assert np.abs(table - p).mean() < 0.07  # 0.1 with a softmax alone


class Fixed:
    """A classifier of one's own: no scikit-learn, no get_params."""

    def __init__(self, columns=None):
        self.columns = columns

    def fit(self, x, y):
        self.shares = np.bincount(y)[np.unique(y)] / len(y)

    def predict_proba(self, x):
        return np.tile(self.shares, (len(x), 1))[:, : self.columns]


def test_a_classifier_of_ones_own_is_copied_and_cross_fitted():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.naive_bayes import GaussianNB

    log, p = drawn(1500, 3, "linear")
    for model in (GaussianNB(), RandomForestClassifier(50, min_samples_leaf=20, random_state=0), Fixed()):
        found = cael.estimate_logging(log, model=model)
        cael.testing.check_policy(found, log)
        assert found.family == type(model).__name__
        assert not hasattr(model, "classes_")
        assert not hasattr(model, "shares")
    near = np.abs(table_of(cael.estimate_logging(log, model=GaussianNB()), log) - p).mean()
    far = np.abs(table_of(cael.estimate_logging(log, model=Fixed()), log) - p).mean()
    assert near < 0.5 * far


def test_models_that_are_none_are_refused():
    log, _ = drawn(300, 3, "linear")
    with pytest.raises(cael.InputError, match="model must be one of auto, logistic, products, boosting, or a class"):
        cael.estimate_logging(log, model="forest")
    with pytest.raises(cael.InputError, match="got the class Fixed"):
        cael.estimate_logging(log, model=Fixed)
    with pytest.raises(cael.InputError, match="Fixed: predict_proba must give finite probabilities"):
        cael.estimate_logging(log, model=Fixed(2))

    class Broken(Fixed):
        def fit(self, x, y):
            raise ValueError("no luck")

    with pytest.raises(cael.InputError, match=r"Broken could not be fitted to the contexts and actions of .*no luck"):
        cael.estimate_logging(log, model=Broken())


@pytest.mark.filterwarnings("ignore:There are no logged propensities")
@pytest.mark.parametrize("how", ["estimate:boosting", "estimate : products", cael.LoggingModel("boosting", folds=3)])
def test_memory_and_files_take_the_same_model(tmp_path, how):
    log, _ = drawn(1200, 3, "steps")
    columns = {f"x_{j}": log.contexts[:, j] for j in range(4)}
    path = tmp_path / "log.parquet"
    pd.DataFrame({"action": log.actions, "reward": log.rewards, **columns}).to_parquet(path)
    here = cael.io.open_log(path, logging=how).log
    there = cael.scan(path, logging=how)
    assert (
        here.logging.family
        == there.logging.policy.family
        == ("boosting" if "boost" in str(how) else "logistic with products")
    )
    assert here.logging.folds == there.logging.policy.folds
    target = np.array([0.2, 0.3, 0.5])
    one, other = (cael.evaluate(log, target, learn=False) for log in (here, there))
    assert one["SNDR"].value == pytest.approx(other["SNDR"].value, rel=1e-9)
    assert one.sensitivity.factor == pytest.approx(other.sensitivity.factor, rel=1e-6)


def test_the_command_takes_a_model_by_name(tmp_path, monkeypatch, capsys):
    from cael.cli import main

    log, _ = drawn(600, 3, "linear")
    columns = {f"x_{j}": log.contexts[:, j] for j in range(4)}
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"action": log.actions, "reward": log.rewards, **columns}).to_csv("log.csv", index=False)
    (tmp_path / "mymodels.py").write_text("from sklearn.naive_bayes import GaussianNB\nbayes = GaussianNB()\n")
    (tmp_path / "cael.toml").write_text('logging = "estimate:python:mymodels:bayes"\n')

    def run(*options):
        with pytest.raises(SystemExit) as end:
            main(["evaluate", "log.csv", "--policy", "uniform", "--no-learn", *options])
        return end.value.code, capsys.readouterr()

    for options in (("--logging", "estimate:python:mymodels:bayes"), ("--config", "cael.toml")):
        code, printed = run(*options)
        assert code in (0, None), printed.err
        assert "GaussianNB" in printed.out + printed.err
    code, printed = run("--logging", "estimate:forest")
    assert code == 1
    assert "model must be one of auto, logistic, products, boosting" in printed.err


def test_weights_that_miss_1_by_little_are_a_caution_where_propensities_are_estimated():
    """A model without products, of a policy of products: many rows see that its weights are off by a few percent."""
    log, _ = drawn(20_000, 3, "products")
    fitted = cael.estimate_logging(log, model="logistic")
    estimated = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=fitted, n_actions=3)
    target = cael.Softmax(lambda x: 0.15 * np.stack([x[:, 0] * x[:, 1], -x[:, 0] * x[:, 1], 0 * x[:, 0]], axis=1))
    verdict = cael.evaluate(estimated, target, learn=False).verdict
    check = {check.name: check for check in verdict.checks}["mean_weight"]
    assert verdict.level == "caution"
    assert check.status == "warn"
    assert abs(check.value) > 5
    assert "the model of the logging policy misses something that the new policy uses" in check.sentence
    told = cael.LoggedData(log.contexts, log.actions, log.rewards, np.asarray(estimated.propensities), n_actions=3)
    assert cael.evaluate(told, target, learn=False).verdict.level == "refuse"  # the same numbers, if they were logged


def test_agreement_is_no_doubt_where_propensities_are_estimated():
    log, _ = drawn(2000, 3, "linear")
    estimated = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=cael.estimate_logging(log), n_actions=3)
    verdict = cael.evaluate(estimated, cael.Uniform(3), learn=False).verdict
    checks = {check.name: check.status for check in verdict.checks}
    assert checks["disagreement"] == "pass"
    assert checks["mean_weight"] == "pass"


def test_the_interval_allows_for_what_the_estimated_weights_moved():
    log, _ = drawn(2000, 3, "linear")
    estimated = with_estimate(log)
    target = cael.Softmax(lambda x: x[:, :3])
    for kind in (cael.SNDR, cael.DR):
        estimate, model = kind().estimate(estimated, target), cael.DM().estimate(estimated, target)
        moved, interval = estimate.diagnostics.moved, estimate.interval()
        assert moved == pytest.approx(abs(estimate.value - model.value))
        assert moved > 0
        assert estimate.diagnostics.bias_bound == moved
        assert interval.low < model.value < interval.high  # it holds what the reward model alone says
        assert estimate.without_bias(0.95).width < interval.width
    assert cael.SNIPS().estimate(estimated, target).diagnostics.moved is None
    told = cael.LoggedData(log.contexts, log.actions, log.rewards, np.asarray(estimated.propensities), n_actions=3)
    assert cael.SNDR().estimate(told, target).diagnostics.bias_bound is None  # the same numbers, if they were logged


def test_words_of_the_allowance_name_the_propensities():
    log, _ = drawn(2000, 3, "linear")
    result = cael.evaluate(with_estimate(log), cael.Uniform(3), learn=False)
    words = next(text for text in result.doubts("SNDR") if "allows for a bias" in text)
    assert "the weights, whose propensities are estimated, moved the value by" in words
    assert "it assumes that their error is no larger" in words


def test_coverage_where_the_logging_policy_follows_what_both_models_miss():
    """Without the allowance the lift is missed in most logs: the negative control."""
    world, n = WORLDS["rewards, 5 actions"]
    lift, plain, whole = world.value(world.target) - world.logged_value(), 0, 0
    for seed in range(9300, 9312):
        log = bare(world.sample(n, seed))
        result = cael.evaluate(with_estimate(log, model="logistic"), world.target, learn=False)
        interval, without = result.lift_interval, result.lift.without_bias(0.95)
        whole += interval.low <= lift <= interval.high
        plain += without.low <= lift <= without.high
        assert result.verdict.level == "caution"
    assert whole >= 11
    assert plain <= 9


def test_auto_trains_a_network_where_the_log_is_worth_little(world):
    log = bare(world.sample(600, 5))
    estimated = with_estimate(log)
    quick = cael.Auto(enough=1e9, cael=cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,))))
    for estimator, names in ((quick, {"SNDR", "CAEL"}), (cael.Auto(learn=False), {"SNDR"})):
        estimate = estimator.estimate(estimated, world.target)
        assert {candidate.name.split("(")[0] for candidate in estimate.diagnostics.path[: len(names)]} == names
        assert estimate.diagnostics.moved > 0
        assert any("Auto left SNIPS out" in warning for warning in estimate.diagnostics.warnings)


def test_cael_allows_for_it_and_is_not_capped_by_an_unbiased_end(world):
    log = bare(world.sample(600, 5))
    estimated = with_estimate(log)
    quick = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,)))
    estimate = quick.estimate(estimated, world.target)
    assert estimate.unbiased == ()
    assert estimate.diagnostics.bias_bound > estimate.diagnostics.moved > 0
    words = reach.allowance(estimate.diagnostics.bias_bound, estimate.diagnostics.moved)
    assert words.endswith(reach.ASSUMPTION.removeprefix("it assumes "))
