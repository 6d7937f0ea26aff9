"""evaluate and compare, and how results print."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import cael
from cael import InputError, LogError, NeedsError, SupportError, panel
from cael.results.pictures import axis, picture

PLAIN = ["LoggedMean", "IPS", "SNIPS", "DM", "DR", "SNDR"]
ALWAYS = ["Auto", *PLAIN]
EVERY = [cael.Auto(), *panel("all"), cael.IPS(clip=2.0)]


@pytest.fixture(scope="module")
def evaluation():
    """What a user gets, with more estimators than are always there."""
    log, policy = cael.testing.example()
    return cael.evaluate(log, policy, EVERY)


@pytest.fixture(scope="module")
def comparison():
    log, policy = cael.testing.example()
    return cael.compare(log, {"target": policy, "uniform": cael.Uniform(8), "same": log.logging, "<b>": policy})


def printed(thing, width=100):
    out = io.StringIO()
    Console(file=out, width=width).print(thing)
    return out.getvalue()


def test_the_panel_is_always_there(log, policy, evaluation):
    """Auto is in it unless it is left out; what is asked for comes after it."""
    more = [estimator.name for estimator in EVERY if estimator.name not in ALWAYS]
    assert [estimate.estimator for estimate in evaluation] == [*ALWAYS, *more]
    for learn in (None, True):
        assert [estimate.estimator for estimate in cael.evaluate(log, policy, learn=learn)] == ALWAYS
    assert [estimate.estimator for estimate in cael.evaluate(log, policy, learn=False)] == PLAIN


def test_auto_comes_first_and_is_the_headline(evaluation):
    """The lift's interval counts the bias of the best estimate."""
    assert evaluation.headline == "Auto"
    assert evaluation.lift.diagnostics.bias_bound == evaluation.best.diagnostics.bias_bound is not None
    wide, narrow = evaluation.lift.interval(), evaluation.lift.interval(method="normal")
    assert wide.low <= narrow.low < narrow.high <= wide.high


def test_evaluation_gives_what_the_estimators_give_alone(log, policy, evaluation):
    for estimator in EVERY:
        assert evaluation[estimator.name].value == pytest.approx(estimator.estimate(log, policy).value, rel=1e-12)
    with pytest.raises(KeyError, match="no estimate named 'XYZ'; there are: Auto, LoggedMean"):
        evaluation["XYZ"]


def test_one_estimator_needs_no_list_and_others_are_refused(log, policy):
    found = cael.evaluate(log, policy, cael.MIPS(), learn=False)
    assert found["MIPS"].value == cael.MIPS().estimate(log, policy).value
    with pytest.raises(InputError, match="must be cael estimators"):
        cael.evaluate(log, policy, ["IPS"])


def test_what_cannot_be_computed_is_listed_with_the_reason(log, policy):
    partial = cael.LoggedOnly(np.full(len(log), 0.2))
    found = cael.evaluate(log, partial)
    assert [each.estimator for each in found] == ["Auto", "LoggedMean", "IPS", "SNIPS"]
    assert [name for name, _ in found.skipped] == ["DM", "DR", "SNDR"]
    assert "DM was not computed: it needs the target's probabilities of all actions" in printed(found, 400)
    with pytest.raises(NeedsError, match="DR"):
        cael.evaluate(log, partial, [cael.DR(clip=3.0)])
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=8)
    assert [each.estimator for each in cael.evaluate(bare, policy)] == ["LoggedMean", "DM"]
    with pytest.raises(NeedsError, match="nothing can be said"):
        cael.evaluate(bare, partial)


def test_a_target_without_support():
    log = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), logging=[0.5, 0.5, 0.0])
    nowhere = [0.0, 0.0, 1.0]
    for estimator in (cael.IPS(), cael.SNIPS(), cael.DR(), cael.SNDR(), cael.BaselineIPS()):
        with pytest.raises(SupportError, match="no support at all"):
            estimator.estimate(log, nowhere)
    unknown = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), np.full(20, 0.5), n_actions=3)
    with pytest.raises(SupportError, match="no support at all"):
        cael.IPS().estimate(unknown, nowhere)
    assert cael.evaluate(log, nowhere)["DM"].diagnostics.unsupported_mass == 1.0


def test_no_match_by_chance_is_zero_for_ips_and_undefined_for_snips():
    log = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), logging=cael.Uniform(3))
    ips = cael.IPS().estimate(log, [0.0, 0.0, 1.0])
    assert ips.value == 0
    assert any("No logged action has positive target probability" in warning for warning in ips.diagnostics.warnings)
    with pytest.raises(SupportError, match="undefined: every weight is 0"):
        cael.SNIPS().estimate(log, [0.0, 0.0, 1.0])
    found = cael.evaluate(log, [0.0, 0.0, 1.0])
    assert [name for name, _ in found.skipped] == ["SNIPS", "SNDR"]


def test_constant_rewards_are_refused_by_evaluate_and_compare_only():
    log = cael.LoggedData(None, [0, 1] * 10, np.zeros(20), logging=cael.Uniform(2))
    with pytest.raises(LogError, match="every one of the 20 rewards is 0"):
        cael.evaluate(log, [0.5, 0.5])
    with pytest.raises(LogError, match="all policies look alike"):
        cael.compare(log, {"a": [0.5, 0.5]})
    assert cael.SNIPS().estimate(log, [0.9, 0.1]).value == 0


def test_json_and_html(evaluation):
    data = json.loads(evaluation.to_json())
    assert [row["estimator"] for row in data["estimates"]] == [estimate.estimator for estimate in evaluation]
    keys = {
        "estimator",
        "value",
        "stderr",
        "error",
        "interval",
        "interval_without_bias",
        "assumes",
        "n",
        "fingerprint",
        "diagnostics",
    }
    assert all(set(row) == keys for row in data["estimates"])
    for row, estimate in zip(data["estimates"], evaluation, strict=True):
        assert (row["stderr"], row["error"]) == (estimate.stderr, estimate.error)
    html = evaluation._repr_html_()
    assert html.count("<tr") == 1 + len(data["estimates"])
    assert "EpsilonGreedy" in html


def test_html_escapes_names(comparison):
    assert "&lt;b&gt;" in comparison._repr_html_()
    assert "<b>" not in comparison._repr_html_()


@pytest.mark.parametrize("width", [80, 130])
def test_the_table_fits_the_terminal(evaluation, width):
    text = printed(evaluation, width)
    assert max(map(len, text.splitlines())) <= width
    assert "SNIPS" in text
    assert ("max weight" in text) == (width >= 110)


def test_pictures():
    assert picture(0.0, 1.0, 2.0, 0.0, 2.0, 5) == "├─●─┤"
    assert picture(-9.0, 1.0, 9.0, 0.0, 2.0, 5) == "◀─●─▶"
    assert axis([(0.0, 1.0), (0.5, 1.5), (-100.0, 100.0)]) == (0.0, 1.5)
    assert axis([(1.0, 1.0)]) == (0.0, 2.0)


def test_estimates_of_different_logs_do_not_subtract(log, policy):
    other, _ = cael.testing.example(n=100)
    with pytest.raises(InputError, match="different logs"):
        cael.IPS().estimate(log, policy) - cael.IPS().estimate(other, policy)
    with pytest.raises(TypeError):
        cael.IPS().estimate(log, policy) - 1.0


def test_compare(log, policy, comparison):
    names = [row.name for row in comparison]
    assert names == sorted(names, key=lambda name: -comparison[name].estimate.value)
    row = comparison["target"]
    assert (comparison.estimator, row.estimate.estimator) == ("Auto", "Auto")
    paired = row.estimate - cael.LoggedMean().estimate(log, policy)
    assert row.lift.value == pytest.approx(paired.value, abs=paired.stderr)
    assert row.lift.stderr < paired.stderr
    assert row.interval.width > row.lift.interval().width
    assert comparison["same"].direction == "no difference shown"
    assert set(json.loads(json.dumps(comparison.to_dict()))) == {
        "estimator", "metric", "better", "baseline", "baseline_name", "level", "simultaneous_factor", "policies",
        "decisions", "answer",
    }  # fmt: skip
    assert "target" in printed(comparison)
    assert "Comparison(" in repr(comparison)
    with pytest.raises(KeyError, match="no policy named"):
        comparison["nobody"]
    with pytest.raises(InputError, match="at least one"):
        cael.compare(log, {})
    assert len(cael.compare(log, [policy, cael.Uniform(8)], cael.SNIPS()).rows) == 2


def test_without_learning_the_logging_policy_has_no_lift_over_itself(log):
    found = cael.compare(log, {"same": log.logging, "uniform": cael.Uniform(8)}, learn=False)
    assert found.estimator == "SNDR"
    assert found["same"].interval.width < 1e-9


def test_one_policy_has_the_plain_interval(log, policy):
    found = cael.compare(log, {"target": policy}, learn=False)
    assert found.factor == pytest.approx(1.96, abs=0.08)


def test_diagnostics_see_wrong_propensities():
    world = cael.worlds.PaperWorld(n_actions=5, gamma=0.3)
    log = world.sample(3000, seed=1)
    wrong = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities * 0.7, n_actions=5)
    right = cael.IPS().estimate(log, world.target).diagnostics
    false = cael.IPS().estimate(wrong, world.target).diagnostics
    assert abs(right.mean_weight_z) < 3
    assert false.mean_weight_z > 3
    assert any("propensities may be wrong" in warning for warning in false.warnings)


def test_clipped_share(log, policy):
    w = cael.Problem(log, policy).weights
    found = cael.IPS(clip=1.5).estimate(log, policy).diagnostics
    assert found.clipped_share == pytest.approx((w > 1.5).mean())
    assert cael.IPS().estimate(log, policy).diagnostics.clipped_share is None
