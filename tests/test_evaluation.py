"""evaluate and compare, and how results print."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import cael
from cael import InputError, LogError, NeedsError, SupportError, panel
from cael.results.pictures import axis, picture

ALWAYS = ["LoggedMean", "IPS", "SNIPS", "DM", "DR", "SNDR"]


def printed(thing, width=100):
    out = io.StringIO()
    Console(file=out, width=width).print(thing)
    return out.getvalue()


def test_the_panel_is_always_there(log, policy):
    assert [each.estimator for each in cael.evaluate(log, policy, learn=False)] == ALWAYS
    more = cael.evaluate(log, policy, [cael.MIPS(), cael.IPS(clip=2.0)], learn=False)
    assert [each.estimator for each in more] == [*ALWAYS, "MIPS", "IPS(clip=2)"]


def test_auto_comes_first_and_is_the_headline(log, policy):
    """`learn` decides; the lift's interval counts the bias of the best estimate."""
    found = cael.evaluate(log, policy, learn=True)
    assert [each.estimator for each in found] == ["Auto", *ALWAYS]
    assert found.headline == "Auto"
    assert found.lift.diagnostics.bias_bound == found.best.diagnostics.bias_bound is not None
    wide, narrow = found.lift.interval(), found.lift.interval(method="normal")
    assert wide.low <= narrow.low < narrow.high <= wide.high
    assert [each.estimator for each in cael.evaluate(log, policy, learn=False)] == ALWAYS


def test_evaluation_gives_what_the_estimators_give_alone(log, policy):
    found = cael.evaluate(log, policy, panel("all"), learn=False)
    for estimator in panel("all"):
        assert found[estimator.name].value == pytest.approx(estimator.estimate(log, policy).value, rel=1e-12)
    with pytest.raises(KeyError, match="no estimate named 'XYZ'; there are: LoggedMean"):
        found["XYZ"]


def test_one_estimator_needs_no_list_and_others_are_refused(log, policy):
    assert cael.evaluate(log, policy, cael.MIPS(), learn=False)["MIPS"].value == cael.MIPS().estimate(log, policy).value
    with pytest.raises(InputError, match="must be cael estimators"):
        cael.evaluate(log, policy, ["IPS"], learn=False)


def test_what_cannot_be_computed_is_listed_with_the_reason(log, policy):
    partial = cael.LoggedOnly(np.full(len(log), 0.2))
    found = cael.evaluate(log, partial, learn=False)
    assert [each.estimator for each in found] == ["LoggedMean", "IPS", "SNIPS"]
    assert [name for name, _ in found.skipped] == ["DM", "DR", "SNDR"]
    assert "DM was not computed: it needs the target's probabilities of all actions" in printed(found, 400)
    with pytest.raises(NeedsError, match="DR"):
        cael.evaluate(log, partial, [cael.DR(clip=3.0)], learn=False)
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=8)
    assert [each.estimator for each in cael.evaluate(bare, policy, learn=False)] == ["LoggedMean", "DM"]
    with pytest.raises(NeedsError, match="nothing can be said"):
        cael.evaluate(bare, partial, learn=False)


def test_a_target_without_support():
    log = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), logging=[0.5, 0.5, 0.0])
    nowhere = [0.0, 0.0, 1.0]
    for estimator in (cael.IPS(), cael.SNIPS(), cael.DR(), cael.SNDR(), cael.BaselineIPS()):
        with pytest.raises(SupportError, match="no support at all"):
            estimator.estimate(log, nowhere)
    unknown = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), np.full(20, 0.5), n_actions=3)
    with pytest.raises(SupportError, match="no support at all"):
        cael.IPS().estimate(unknown, nowhere)
    assert cael.evaluate(log, nowhere, learn=False)["DM"].diagnostics.unsupported_mass == 1.0


def test_no_match_by_chance_is_zero_for_ips_and_undefined_for_snips():
    log = cael.LoggedData(None, [0, 1] * 10, np.arange(20.0), logging=cael.Uniform(3))
    ips = cael.IPS().estimate(log, [0.0, 0.0, 1.0])
    assert ips.value == 0
    assert any("No logged action has positive target probability" in warning for warning in ips.diagnostics.warnings)
    with pytest.raises(SupportError, match="undefined: every weight is 0"):
        cael.SNIPS().estimate(log, [0.0, 0.0, 1.0])
    found = cael.evaluate(log, [0.0, 0.0, 1.0], learn=False)
    assert [name for name, _ in found.skipped] == ["SNIPS", "SNDR"]


def test_constant_rewards_are_refused_by_evaluate_and_compare_only():
    log = cael.LoggedData(None, [0, 1] * 10, np.zeros(20), logging=cael.Uniform(2))
    with pytest.raises(LogError, match="every one of the 20 rewards is 0"):
        cael.evaluate(log, [0.5, 0.5], learn=False)
    with pytest.raises(LogError, match="cannot tell one policy from another"):
        cael.compare(log, {"a": [0.5, 0.5]}, learn=False)
    assert cael.SNIPS().estimate(log, [0.9, 0.1]).value == 0


def test_json_and_html(log, policy):
    found = cael.evaluate(log, policy, learn=False)
    data = json.loads(found.to_json())
    assert [each["estimator"] for each in data["estimates"]] == ALWAYS
    first = data["estimates"][1]
    told = {"estimator", "value", "stderr", "interval", "normal_interval", "n", "fingerprint", "diagnostics"}
    assert set(first) == told
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(ALWAYS)
    assert "EpsilonGreedy" in html


def test_html_escapes_names(log, policy):
    found = cael.compare(log, {"<b>": policy}, learn=False)
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b>" not in found._repr_html_()


@pytest.mark.parametrize("width", [80, 130])
def test_the_table_fits_the_terminal(log, policy, width):
    text = printed(cael.evaluate(log, policy, learn=False), width)
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


def test_compare(log, policy):
    found = cael.compare(log, {"target": policy, "uniform": cael.Uniform(8), "same": log.logging}, learn=False)
    assert [row.name for row in found] == sorted(("target", "uniform", "same"), key=lambda n: -found[n].estimate.value)
    row = found["target"]
    paired = cael.SNDR().estimate(log, policy) - cael.LoggedMean().estimate(log, policy)
    assert row.lift.value == pytest.approx(paired.value, abs=paired.stderr)
    assert row.lift.stderr < paired.stderr
    assert row.interval.width > row.lift.interval().width
    assert found["same"].direction == "no difference shown"
    assert found["same"].interval.width < 1e-9  # the logging policy against itself
    assert {"estimator", "baseline", "level", "simultaneous_factor", "policies"} == set(
        json.loads(json.dumps(found.to_dict()))
    )
    assert "target" in printed(found)
    assert "Comparison(" in repr(found)
    with pytest.raises(KeyError, match="no policy named"):
        found["nobody"]
    with pytest.raises(InputError, match="at least one"):
        cael.compare(log, {}, learn=False)
    assert len(cael.compare(log, [policy, cael.Uniform(8)], cael.SNIPS()).rows) == 2


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
