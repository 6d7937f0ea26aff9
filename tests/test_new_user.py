"""Nine logs as a new user brings them, each through audit, evaluate, compare and plan at the first try.

The seed of a log is its number in the list of the issue, and was chosen before any of them was run. Files go through
the command, objects through Python. The truth is the mean expected reward of the policy on the log's own decisions.
"""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import cael
from cael.cli import main
from tests.io.dsjson import coffee

N = 3000


@dataclass(frozen=True)
class Trial:
    """arguments: of every command, the log first. truths: of each policy, by its text. level: what the verdict may be
    at best."""

    arguments: tuple[str, ...]
    truths: dict[str, float]
    levels: tuple[str, ...] = ("ok", "caution")


def drawn(p, rng):
    """An action of each row of p (n, k), and its probability."""
    actions = (rng.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)
    return actions, p[np.arange(len(p)), actions]


def at(table, actions):
    return table[np.arange(len(table)), actions]


def softened(scores, floor=0.3):
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (1 - floor) * p / p.sum(axis=1, keepdims=True) + floor / scores.shape[1]


def recommender(folder):
    """1: a CSV file with missing numbers and missing categories."""
    rng, names = np.random.default_rng(1), np.array([f"film_{i:02d}" for i in range(12)])
    age, country = rng.normal(40, 12, N), rng.choice(["no", "se", "dk"], N)
    q = 0.2 + 0.15 * np.sin(np.arange(12) + (country == "no")[:, None] + age[:, None] / 20)
    p = softened(4 * q)
    actions, logged = drawn(p, rng)
    best = (q + rng.normal(0, 0.05, q.shape)).argmax(axis=1)
    pd.DataFrame({
        "request_id": np.arange(N), "age": np.where(rng.random(N) < 0.17, np.nan, age.round(1)),
        "country": np.where(rng.random(N) < 0.1, None, country), "film": names[actions],
        "clicked": (rng.random(N) < at(q, actions)).astype(int), "propensity": logged, "new": names[best],
    }).to_csv(folder / "films.csv", index=False)  # fmt: skip
    arguments = (str(folder / "films.csv"), "--action", "film", "--contexts", "age", "country")
    return Trial(arguments, {"choice:new": at(q, best).mean(), "uniform": q.mean()})


def decisions(folder):
    """2: what Vowpal Wabbit writes; three of four drinks are on the menu."""
    log = coffee(N, seed=2)
    return Trial((str(log.write(folder / "coffee.dsjson")),), {"uniform": log.uniform})


def email(folder):
    """4: three e-mails, revenue that is nearly always 0 and sometimes large; the policy is a table for all alike."""
    rng, names = np.random.default_rng(4), np.array(["none", "mens", "womens"])
    recency, rate = rng.integers(1, 13, 4 * N), np.array([0.02, 0.04, 0.06])
    actions = rng.integers(0, 3, 4 * N)
    bought = rng.random(4 * N) < rate[actions]
    spend = np.where(bought, rng.lognormal(3.0, 0.6, 4 * N), 0.0)
    mean = float(np.exp(3.0 + 0.18))
    frame = {"recency": recency, "segment": names[actions], "spend": spend.round(2), "propensity": 1 / 3}
    pd.DataFrame(frame).to_csv(folder / "email.csv", index=False)
    (folder / "mostly.csv").write_text("action,probability\nwomens,0.8\nmens,0.1\nnone,0.1\n")
    arguments = (str(folder / "email.csv"), "--action", "segment", "--reward", "spend", "--contexts", "recency")
    truth = float(rate @ [0.1, 0.1, 0.8]) * mean
    return Trial(arguments, {f"table:{folder / 'mostly.csv'}": truth, "uniform": float(rate.mean()) * mean})


def unlogged(folder):
    """5: no propensities; the old policy looked at the contexts that the log has."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, 2))
    q = 0.3 + 0.2 * np.tanh(x @ rng.normal(size=(2, 4)))
    actions, _ = drawn(softened(2 * x @ rng.normal(size=(2, 4)) / 2), rng)
    frame = pd.DataFrame({"x_0": x[:, 0], "x_1": x[:, 1], "action": actions, "reward": rng.random(N) < at(q, actions)})
    frame["new"] = q.argmax(axis=1)
    frame.astype({"reward": int}).to_parquet(folder / "bare.parquet")
    truths = {"choice:new": q.max(axis=1).mean(), "uniform": q.mean()}
    return Trial((str(folder / "bare.parquet"),), truths, ("caution",))


def catalogue(folder):
    """6: items come and go, and the eligible ones are a column of lists."""
    rng = np.random.default_rng(6)
    day = np.arange(N) * 10 // N
    eligible = (np.arange(20) >= 1 * day[:, None]) & (np.arange(20) < 10 + day[:, None])
    quality = rng.uniform(0.1, 0.6, 20)
    p = np.where(eligible, np.exp(2 * quality), 0.0)
    p /= p.sum(axis=1, keepdims=True)
    actions, logged = drawn(p, rng)
    best = np.where(eligible, quality, -1).argmax(axis=1)
    pd.DataFrame({
        "day": day, "item": actions, "reward": (rng.random(N) < quality[actions]).astype(float), "propensity": logged,
        "eligible": [np.flatnonzero(row).tolist() for row in eligible], "best": best,
    }).to_parquet(folder / "items.parquet")  # fmt: skip
    truths = {
        "choice:best,epsilon=0": quality[best].mean(),
        "uniform": (eligible @ quality / eligible.sum(axis=1)).mean(),
    }
    return Trial((str(folder / "items.parquet"),), truths)


def positions(folder):
    """7: each impression shows three positions, a row each; the position is a context, the impression a cluster."""
    rng, shows = np.random.default_rng(7), N // 3
    impression, position = np.repeat(np.arange(shows), 3), np.tile([1, 2, 3], shows)
    pi = [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    taste = np.repeat(rng.normal(0, 0.05, shows), 3)
    q = np.clip((rng.uniform(0.2, 0.5, 6) + taste[:, None]) / position[:, None], 0.01, 0.99)
    actions, logged = drawn(np.tile(softened(rng.normal(size=(1, 6))), (N, 1)), rng)
    pd.DataFrame({
        "impression_id": impression, "position": position, "item": actions,
        "click": (rng.random(N) < at(q, actions)).astype(int), "propensity": logged, "pi": [pi] * N,
    }).to_parquet(folder / "positions.parquet")  # fmt: skip
    arguments = (str(folder / "positions.parquet"), "--cluster", "impression_id", "--contexts", "position")
    return Trial(arguments, {"dense:pi": (q @ pi).mean(), "uniform": q.mean()})


def rewards(folder, reward="clicked"):
    """8: several rewards beside each other; the truth is that of one of them."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=N)
    clicks, minutes = 0.3 + 0.1 * np.tanh(np.outer(x, [1, 0, -1])), 5 + np.outer(x, [0.5, 1, 0])
    actions = rng.integers(0, 3, N)
    pd.DataFrame({
        "x_0": x, "arm": actions, "clicked": (rng.random(N) < at(clicks, actions)).astype(int),
        "minutes": at(minutes, actions) + rng.normal(size=N), "propensity": 1 / 3, "new": (x < 0) * 2,
    }).to_csv(folder / "several.csv", index=False)  # fmt: skip
    q = {"clicked": clicks, "minutes": minutes}[reward]
    arguments = (str(folder / "several.csv"), "--metric", "clicked", "--metric", "minutes")
    return Trial(arguments, {"choice:new": at(q, (x < 0) * 2).mean(), "uniform": q.mean()})


FILES = {
    "1 recommender": recommender, "2 dsjson": decisions, "4 email": email, "5 no propensities": unlogged,
    "6 catalogue": catalogue, "7 positions": positions,
}  # fmt: skip


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--format", "json"])
    out, err = capsys.readouterr()
    assert stop.value.code in (0, None), (arguments, out[-2000:], err)
    return json.loads(out)


def headline_of(answer):
    return next(each for each in answer["estimates"] if each["estimator"] == answer["headline"])


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_a_file_goes_through_all_commands_at_the_first_try(name, tmp_path, capsys):
    trial = FILES[name](tmp_path)
    run(capsys, "audit", *trial.arguments)
    for policy, truth in trial.truths.items():
        answer = run(capsys, "evaluate", *trial.arguments, "--policy", policy)
        assert answer["verdict"]["level"] in trial.levels, answer["verdict"]["reasons"]
        interval = headline_of(answer)["interval"]
        assert interval["low"] <= truth <= interval["high"], (policy, truth, interval)
    policies = [part for policy in trial.truths for part in ("--policy", policy)]
    compared = run(capsys, "compare", *trial.arguments, *policies, "--no-learn")
    assert [row["name"] for row in compared["policies"]] == list(trial.truths)
    first = next(iter(trial.truths))
    assert run(capsys, "plan", *trial.arguments, "--policy", first, "--lift", "10%")["options"]


@pytest.mark.long
def test_several_rewards_go_through_all_commands_at_the_first_try(tmp_path, capsys):
    clicks, minutes = rewards(tmp_path), rewards(tmp_path, "minutes")
    run(capsys, "audit", clicks.arguments[0], "--reward", "clicked")
    for policy in clicks.truths:
        answer = run(capsys, "evaluate", *clicks.arguments, "--policy", policy)
        for row, trial in zip(answer["scorecard"]["metrics"], (clicks, minutes), strict=True):
            interval = row["estimate"]["interval"]
            assert interval["low"] <= trial.truths[policy] <= interval["high"], (row["name"], policy, interval)
            assert row["verdict"]["level"] in clicks.levels
    policies = [part for policy in clicks.truths for part in ("--policy", policy)]
    assert run(capsys, "compare", *clicks.arguments, *policies, "--no-learn")["scorecard"]["metrics"]
    for reward in ("clicked", "minutes"):
        assert run(capsys, "plan", clicks.arguments[0], "--reward", reward, "--policy", "choice:new")["options"]


def everything(log, policies, truths):
    """audit, evaluate, compare and plan in Python."""
    assert cael.audit(log).status != "fail"
    for name, policy in policies.items():
        answer = cael.evaluate(log, policy)
        low, high = answer.best.interval()
        assert answer.verdict.level in ("ok", "caution"), answer.verdict.reasons
        assert low <= truths[name] <= high, (name, truths[name], low, high)
    assert len(list(cael.compare(log, policies, learn=False))) == len(policies)
    assert cael.plan(log, next(iter(policies.values())), lift=0.1).options


@pytest.mark.long
def test_a_frame_and_a_pipeline_on_its_columns():
    """3: a frame with text, missing numbers and its own index; a Pipeline that was trained on last month's frame."""
    rng, names = np.random.default_rng(3), np.array(["short", "long", "video", "none"])

    def month(first):
        age, plan = rng.normal(45, 15, N), rng.choice(["free", "pro", "team"], N)
        q = 0.2 + 0.1 * np.array([0, 1, 2, 0.5]) * (plan != "free")[:, None]
        q = q + 0.1 * (np.arange(4) == 0) * (age > 50)[:, None]
        actions, logged = drawn(np.tile([0.4, 0.3, 0.2, 0.1], (N, 1)), rng)
        frame = pd.DataFrame({
            "age": np.where(rng.random(N) < 0.1, np.nan, age), "plan": plan, "action": names[actions],
            "reward": (rng.random(N) < at(q, actions)).astype(float), "propensity": logged,
        }, index=[f"{first}-{i}" for i in range(N)])  # fmt: skip
        return frame, q

    last, _ = month("may")
    frame, q = month("june")
    rewarded = last[last.reward > 0]
    prepared = make_column_transformer((OneHotEncoder(), ["plan"]), (SimpleImputer(), ["age"]))
    pipe = make_pipeline(prepared, HistGradientBoostingClassifier(max_iter=20))
    pipe.fit(rewarded[["plan", "age"]], rewarded.action)
    log = cael.read(frame, {"contexts": ["age", "plan"]})
    p = pd.DataFrame(pipe.predict_proba(frame), columns=pipe.classes_, index=frame.index)
    chosen = pd.Series(pipe.predict(frame), index=frame.index)
    column = {name: number for number, name in enumerate(names)}
    truths = {
        "pipeline": float((p[names].to_numpy() * q).sum(axis=1).mean()),
        "chosen": float(at(q, chosen.map(column).to_numpy()).mean()),
    }
    policies = {"pipeline": pipe, "chosen": chosen.sample(frac=1, random_state=3)}
    everything(log, policies, truths)
    assert cael.evaluate(log, p.sample(frac=1, random_state=3), learn=False)["SNIPS"].value == pytest.approx(
        cael.evaluate(log, pipe, learn=False)["SNIPS"].value
    )


@pytest.mark.long
def test_a_dictionary_of_obp():
    """9: bandit_feedback with all probabilities of the logging policy, and action_dist."""
    rng, k = np.random.default_rng(9), 8
    x = rng.normal(size=(N, 4))
    q = 1 / (1 + np.exp(-(x @ rng.normal(size=(4, k)) / 2)))
    mu, pi = softened(2 * q), softened(8 * q, 0.1)
    actions, logged = drawn(mu, rng)
    feedback = {
        "n_rounds": N, "n_actions": k, "context": x, "action": actions, "position": None, "pscore": logged,
        "reward": (rng.random(N) < at(q, actions)).astype(float), "pi_b": mu[:, :, None], "action_context": np.eye(k),
    }  # fmt: skip
    log, policy = cael.io.from_obp(feedback, pi[:, :, None])
    everything(
        log, {"new": policy, "uniform": cael.Uniform()}, {"new": (pi * q).sum(axis=1).mean(), "uniform": q.mean()}
    )
