"""Labels that carry: columns by action, rows by index or id, models on original columns; never by a hidden order."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import cael

RNG = np.random.default_rng(0)
TABLE = RNG.dirichlet(np.ones(5), 40)
LOG = cael.LoggedData(RNG.normal(size=(40, 2)), RNG.integers(0, 5, 40), RNG.random(40), logging=np.full(5, 0.2))

FRUITS = ("fig", "apple", "kiwi")
N = 400
VISITS = pd.DataFrame({
    "decision_id": [f"d{i}" for i in range(N)],
    "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(40, 10, N)),
    "country": RNG.choice(["no", "se", "dk"], N),
    "action": RNG.choice(FRUITS, N),
    "propensity": 1 / 3,
})  # fmt: skip
VISITS["reward"] = (RNG.random(N) < 0.2 + 0.4 * ((VISITS.action == "fig") & (VISITS.country == "no"))).astype(float)
ROLES = {"contexts": ["age"], "segment": ["country"]}
FRUIT_LOG = cael.read(VISITS, ROLES)
P = pd.DataFrame(RNG.dirichlet(np.ones(3), N), columns=list(FRUITS))


def value(policy, log=LOG):
    return float(cael.SNIPS().estimate(log, policy))


def by_hand(p, visits=VISITS):
    """SNIPS with the columns of a frame looked up by name."""
    w = np.array([row[action] for (_, row), action in zip(p.iterrows(), visits.action, strict=True)]) * 3
    return float(w @ visits.reward / w.sum())


@pytest.mark.parametrize("names", [lambda a: a, str, lambda a: f"p_{a}", lambda a: f"column_{a}"])
@given(order=st.permutations(range(5)))
def test_columns_in_any_order_are_the_same_policy(names, order):
    columns = {names(action): TABLE[:, action] for action in order}
    frames = [pd.DataFrame(columns), *([pl.DataFrame(columns)] if isinstance(names(0), str) else [])]
    for frame in frames:
        assert value(frame) == value(TABLE)
    wrong = TABLE[:, list(order)]
    assert (value(wrong) == value(TABLE)) == (list(order) == [0, 1, 2, 3, 4])  # by position it would be another policy


@settings(deadline=None, max_examples=20)
@given(columns=st.permutations(FRUITS), rows=st.permutations(range(N)), prefix=st.sampled_from(["", "p_", "pi.a-"]))
def test_names_in_any_order_of_columns_and_rows_are_the_same_policy(columns, rows, prefix):
    expected = value(P, FRUIT_LOG)
    assert expected == pytest.approx(by_hand(P))
    frame = P[list(columns)].add_prefix(prefix)
    moved = frame.assign(decision_id=VISITS.decision_id).iloc[list(rows)]
    for policy in (frame.iloc[list(rows)], pl.DataFrame(frame), pa.table(frame), moved, pl.DataFrame(moved)):
        assert value(policy, FRUIT_LOG) == expected


def test_other_forms_by_label_are_the_same_policy():
    expected = value(P, FRUIT_LOG)
    given_order = cael.Tabular(P.to_numpy(), actions=FRUITS)
    assert value(given_order, FRUIT_LOG) == value({name: P[name] for name in FRUITS}, FRUIT_LOG) == expected
    one = value({"kiwi": 0.7, "apple": 0.1, "fig": 0.2}, FRUIT_LOG)
    assert one == value(pd.Series([0.2, 0.1, 0.7], index=FRUITS), FRUIT_LOG)
    assert one == value(cael.Tabular([0.2, 0.1, 0.7], actions=FRUITS), FRUIT_LOG)
    columns = {"fig": 0.2, "kiwi": 0.7, "apple": 0.1}
    assert one == value(lambda x: {name: np.full(len(x), p) for name, p in columns.items()}, FRUIT_LOG)
    mixed = value(cael.Mixture([P, cael.Uniform()], [0.5, 0.5]), FRUIT_LOG)
    assert mixed == pytest.approx(by_hand(P / 2 + 1 / 6))
    scores = np.log(P)
    moved = scores[["kiwi", "fig", "apple"]].sample(frac=1, random_state=3)
    assert value(cael.Softmax(moved), FRUIT_LOG) == pytest.approx(expected)
    best = value(cael.EpsilonGreedy(scores[["kiwi", "fig", "apple"]]), FRUIT_LOG)
    chosen = P.idxmax(axis=1)
    assert best == value(chosen, FRUIT_LOG) == value(chosen.sample(frac=1, random_state=4), FRUIT_LOG)


def test_a_log_with_its_own_index_wants_it_back():
    index = pd.Index([f"u{i}" for i in range(N)])
    log = cael.read(VISITS.set_index(index), ROLES)
    assert log.contexts.shape == FRUIT_LOG.contexts.shape  # the index is no column
    own = P.set_index(index)
    assert value(own, log) == value(own.sample(frac=1, random_state=1), log) == value(P, FRUIT_LOG)
    assert value(cael.Tabular(P.to_numpy(), actions=FRUITS), log) == value(P, FRUIT_LOG)  # no labels: by position
    with pytest.raises(cael.PolicyError, match=r"400 of the 400 rows of the log are not among them.*set_axis"):
        value(P, log)
    with pytest.raises(cael.PolicyError, match=r"1 labels occur more than once \('u0'\)"):
        value(P.set_index(index.where(index != "u1", "u0")), log)


def test_rows_that_were_left_out_are_matched_by_their_number():
    flawed = VISITS.assign(reward=VISITS.reward.where(np.arange(N) % 7 != 3))
    log = cael.io.open_log(flawed, ROLES, drop_invalid=True).log
    kept = flawed.reward.notna()
    assert value(P, log) == pytest.approx(by_hand(P[kept], VISITS[kept]))
    assert value(P[kept], log) == value(P, log)
    half = FRUIT_LOG.take(np.arange(N) >= 200)
    assert value(P, half) == value(P.iloc[200:], half) == pytest.approx(by_hand(P.iloc[200:], VISITS.iloc[200:]))


HOSTILE = {
    "an array by position": (P.to_numpy(), "by position, and the actions are names"),
    "a function by position": (lambda x: np.full((len(x), 3), 1 / 3), "by position, and the actions are names"),
    "numbered columns": (pd.DataFrame(P.to_numpy()), r"no actions are '0', '1', '2' \(3\)"),
    "another name": (P.rename(columns={"fig": "figs"}), r"no actions are 'figs' \(1\); without a column are 'fig'"),
    "a column too many": (P.assign(pear=0.0), "no actions are 'pear'"),
    "a column twice": (pd.DataFrame(P.to_numpy(), columns=["fig", "kiwi", "kiwi"]), "more than once"),
    "rows of another log": (P.set_index(np.arange(N) + 7), "7 of the 400 rows of the log are not among them"),
    "ids of another log": (P.set_index(VISITS.decision_id + "x"), "400 of the 400 rows of the log"),
    "an unknown choice": (np.append(VISITS.action[:-1], "pear"), "expected actions of the log.*such as 'pear'"),
    "predicted rewards": (RNG.random(N), "predicted rewards are not a policy"),
    "a class": (LogisticRegression, "is a LogisticRegression class"),
    "a regressor": (Ridge().fit(VISITS[["reward"]], VISITS.reward), "A regressor of rewards is an outcome model"),
    "untrained": (LogisticRegression(), "is the model trained"),
    "other columns": (
        LogisticRegression().fit(VISITS[["reward"]].assign(height=1.0), VISITS.action), "without 'height'",
    ),
    "columns without names": (
        LogisticRegression().fit(RNG.normal(size=(N, 3)), VISITS.action), "3 columns without names.*has 2 contexts",
    ),
    "missing numbers": (
        LogisticRegression().fit(VISITS[["age"]].fillna(0), VISITS.action), "ValueError: Input X contains NaN",
    ),
    "another class": (
        LogisticRegression().fit(VISITS[["propensity"]], np.where(VISITS.action == "fig", "pear", "fig")), "'pear'",
    ),
}  # fmt: skip


def test_the_message_names_the_order_and_its_advice_works():
    with pytest.raises(cael.PolicyError) as refused:
        value(P.to_numpy(), FRUIT_LOG)
    order = str(list(FRUIT_LOG.action_labels))
    assert f"cael.Tabular(array, actions={order})" in str(refused.value)
    assert f"actions={'|'.join(FRUIT_LOG.action_labels)}" in str(refused.value)
    in_order = P[list(FRUIT_LOG.action_labels)].to_numpy()
    assert value(cael.Tabular(in_order, actions=list(FRUIT_LOG.action_labels)), FRUIT_LOG) == value(P, FRUIT_LOG)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_order_is_an_error_and_never_another_number(name):
    policy, message = HOSTILE[name]
    with pytest.raises(cael.CaelError, match=re.compile(message, re.DOTALL)):
        value(policy, FRUIT_LOG)


def test_a_frame_of_a_log_without_labels_names_numbers():
    for names in (list("abcde"), [1, 2, 3, 4, 5], ["p_0", "q_1", "p_2", "p_3", "p_4"]):
        with pytest.raises(cael.PolicyError, match=r"expected one column for each action"):
            value(pd.DataFrame(TABLE, columns=names))
    with pytest.raises(cael.PolicyError, match=r"has labels .* that only a log can match"):
        cael.Tabular(pd.DataFrame(TABLE, columns=list("abcde"))).probabilities(LOG.whole)


def test_inputs_of_one_log_that_label_rows_differently_are_refused():
    frame = pd.DataFrame({"x": RNG.normal(size=40)})
    shuffled = pd.Series(LOG.rewards).sample(frac=1, random_state=0)
    with pytest.raises(cael.PolicyError, match=r"rewards and contexts label their rows differently: row 0"):
        cael.LoggedData(frame, LOG.actions, shuffled)
    log = cael.LoggedData(frame, LOG.actions, shuffled.sort_index(), logging=np.full(5, 0.2))
    model = LogisticRegression().fit(frame, LOG.actions)
    assert value(model, log) == value(model.predict_proba(frame), log)


def pipeline(classifier=None):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    prepared = make_column_transformer((OneHotEncoder(), ["country"]), (numbers, ["age"]))
    return make_pipeline(prepared, LogisticRegression() if classifier is None else classifier).fit(
        VISITS[["country", "age"]], VISITS.action
    )


def test_a_pipeline_is_given_the_original_columns(tmp_path, monkeypatch):
    pipe = pipeline()
    expected = by_hand(pd.DataFrame(pipe.predict_proba(VISITS), columns=pipe.classes_))
    logs = [FRUIT_LOG, cael.read(pl.DataFrame(VISITS), ROLES), cael.read(pa.Table.from_pandas(VISITS), ROLES)]
    VISITS.to_csv(tmp_path / "log.csv", index=False)
    VISITS.to_parquet(tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        logs += [cael.read(tmp_path / name, ROLES), cael.scan(tmp_path / name, ROLES)]
    for log in logs:
        assert value(pipe, log) == pytest.approx(expected, rel=1e-12)
        half = cael.Mixture([pipe, cael.Uniform()], [0.5, 0.5])
        assert value(half, log) == pytest.approx(value(half, FRUIT_LOG), rel=1e-12)
    assert value(FRUIT_LOG.table.policy(pipe), FRUIT_LOG) == pytest.approx(expected)


def test_classes_in_any_order_and_a_subset_of_the_actions():
    two = VISITS[VISITS.action != "apple"]
    pipe = pipeline(RandomForestClassifier(5, random_state=0))
    few = LogisticRegression().fit(two[["propensity"]], two.action)
    p = pd.DataFrame(few.predict_proba(VISITS[["propensity"]]), columns=few.classes_).assign(apple=0.0)
    assert value(few, FRUIT_LOG) == pytest.approx(by_hand(p))
    chosen = pipe.predict(VISITS)
    assert value(chosen, FRUIT_LOG) == value(list(chosen), FRUIT_LOG) == value(cael.Choice(chosen), FRUIT_LOG)
    assert value(pipeline(LinearSVC()), FRUIT_LOG) == value(pipeline(LinearSVC()).predict(VISITS), FRUIT_LOG)
    numbers = LogisticRegression().fit(LOG.contexts, LOG.actions.astype(float))
    assert value(numbers.predict(LOG.contexts)) == value(numbers.predict(LOG.contexts).astype(int)) != 0
    assert value(numbers) == value(numbers.predict_proba(LOG.contexts))


def test_a_function_may_ask_for_columns_and_answer_by_label():
    def best(frame):
        return np.where(frame["country"] == "no", "fig", "kiwi")

    asked = cael.FromModel(best, columns=["country"])
    assert value(asked, FRUIT_LOG) == value(np.where(VISITS.country == "no", "fig", "kiwi"), FRUIT_LOG)
    said = cael.FromModel(lambda x: P.to_numpy()[: len(x)], actions=FRUITS)
    assert value(said, FRUIT_LOG) == value(P, FRUIT_LOG)


def test_an_order_can_be_said_in_a_text_and_in_a_table(tmp_path):
    table = cael.io.open_log(VISITS.assign(all=P.to_numpy().tolist()), ROLES)
    expected = value(P, FRUIT_LOG)
    assert value(table.policy("dense:all,actions=fig|apple|kiwi"), table.log) == expected
    assert value(table.policy({"kind": "dense", "column": "all", "actions": list(FRUITS)}), table.log) == expected
    with pytest.raises(cael.PolicyError, match=r"dense:COLUMN,actions=apple\|fig\|kiwi"):
        table.policy("dense:all")
    with pytest.raises(cael.PolicyError, match="without a column are 'apple'"):
        table.policy("dense:all,actions=fig|pear|kiwi")


def test_the_order_of_the_labels_is_public():
    assert FRUIT_LOG.action_labels == ("apple", "fig", "kiwi")
    assert LOG.action_labels == (0, 1, 2, 3, 4)


def test_a_series_is_one_distribution():
    assert value(pd.Series(TABLE[0])) == value(pl.Series(TABLE[0])) == value(TABLE[0])
    assert value(pd.Series(TABLE[0][::-1], index=[4, 3, 2, 1, 0])) == value(TABLE[0])


def test_probabilities_of_logged_actions_are_matched_by_their_rows():
    p = pd.Series(np.linspace(0.1, 0.9, 40))
    assert value(cael.LoggedOnly(p.sample(frac=1, random_state=0))) == value(cael.LoggedOnly(p))


def test_a_frame_that_is_in_order_is_not_copied_twice():
    frame = pd.DataFrame(TABLE)
    assert np.shares_memory(cael.Tabular(frame, copy=False).table, frame.to_numpy())


@pytest.mark.parametrize("kind", [cael.Softmax, cael.EpsilonGreedy])
def test_scores_are_matched_by_name_too(kind):
    scores = pd.DataFrame({f"s_{action}": np.log(TABLE[:, action]) for action in (3, 0, 4, 2, 1)})
    assert value(kind(scores)) == value(kind(np.log(TABLE))) != value(kind(scores.to_numpy()))


def test_a_model_that_saw_the_reward_is_refused(tmp_path):
    leaking = LogisticRegression().fit(VISITS[["reward"]], VISITS.action)
    VISITS.to_parquet(tmp_path / "log.parquet")
    for log in (FRUIT_LOG, cael.scan(tmp_path / "log.parquet", ROLES)):
        with pytest.raises(cael.PolicyError, match="column 'reward', which is the reward"):
            value(leaking, log)


def test_predictions_of_rewards_are_never_read_by_a_hidden_order():
    q = pd.DataFrame(TABLE)
    expected = float(cael.DM(outcome=cael.FixedOutcome(TABLE)).estimate(LOG, TABLE))
    assert float(cael.DM(outcome=cael.FixedOutcome(q[[3, 0, 4, 2, 1]])).estimate(LOG, TABLE)) == pytest.approx(expected)
    for frame in (q.set_axis(list("abcde"), axis=1), q.sample(frac=1, random_state=0)):
        with pytest.raises(cael.InputError, match=r"log.action_labels"):
            cael.FixedOutcome(frame)
