"""The same data gives the same estimates, whatever the format of the log and the form of the policy."""

import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from tests.io import logs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def written(folder):
    return logs.write(folder)


@pytest.fixture(scope="module")
def specs(folder):
    return logs.write_policies(folder)


@pytest.fixture(scope="module")
def truth():
    """The estimates from the arrays themselves."""
    return told(from_arrays())


def told(log):
    return {each.estimator: (each.value, each.error) for each in cael.evaluate(log, logs.arrays()[4])}


def from_arrays(*, whole=False):
    """whole: with the whole logging policy, which knows the second moment of the weights, too."""
    x, actions, rewards, logging, _, _ = logs.arrays()
    users = [f"u{i // 3}" for i in range(logs.N)]
    known = {"logging": logging} if whole else {"propensities": logging[np.arange(logs.N), actions]}
    return cael.LoggedData(x, actions, rewards, clusters=users, **known)


def evaluate(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", *map(str, arguments), "--format", "json"])
    out = capsys.readouterr()
    assert stop.value.code in (0, 3), out.err
    return json.loads(out.out)


def agree(found, truth, names):
    for name in names:
        assert found[name] == pytest.approx(truth[name], rel=1e-9), name


def numbers(document):
    return {each["estimator"]: (each["value"], each["error"]) for each in document["estimates"]}


FORMATS = ("log.parquet", "log.csv", "log.csv.gz", "log.arrow", "log.arrows", "parts", "csv", "csv/part-*.csv")
FORMS = (
    "probability", "bare", "dense list", "dense columns", "top-k", "long", "long csv", "choice", "greedy",
    "long softmax",
)  # fmt: skip


def test_every_form_is_tried(written, specs):
    assert set(FORMATS) == set(written)
    assert set(FORMS) == set(specs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("format", FORMATS)
def test_command_line(capsys, folder, written, specs, truth, format, form):
    found = numbers(evaluate(capsys, written[format], "--policy", specs[form], "--actions", folder / "actions.csv"))
    logged_only = form in ("probability", "bare")
    agree(found, truth, ("LoggedMean", "IPS", "SNIPS") if logged_only else truth)
    assert ("DR" in found) is not logged_only


FRAMES = (
    "pandas", "pandas categorical", "polars", "polars categorical", "duckdb", "duckdb decimals", "pyarrow table",
    "pyarrow batch", "pyarrow reader",
)  # fmt: skip


def frames():
    table = log = logs.table()  # noqa: F841 - DuckDB finds it by name
    return {
        "pandas": table.to_pandas(),
        "pandas categorical": table.to_pandas(categories=["action", "best", "user_id"]),
        "polars": pl.from_arrow(table),
        "polars categorical": pl.from_arrow(table).with_columns(pl.col("action").cast(pl.Categorical)),
        "duckdb": duckdb.sql("select * from log"),
        "duckdb decimals": duckdb.sql("select * replace (cast(reward as decimal(12, 3)) as reward) from log"),
        "pyarrow table": table,
        "pyarrow batch": table.combine_chunks().to_batches()[0],
        "pyarrow reader": table.to_reader(max_chunksize=50),
    }


@pytest.mark.parametrize("kind", FRAMES)
def test_frames(truth, specs, kind):
    table = cael.io.open_log(frames()[kind], actions=logs.ACTIONS)
    for form in ("dense list", "top-k", "choice", "long"):
        found = cael.evaluate(table.log, table.policy(specs[form]))
        agree({each.estimator: (each.value, each.error) for each in found}, truth, truth)


def test_read_is_the_log_of_open_log(written):
    assert cael.read(written["log.parquet"]).fingerprint == cael.io.open_log(written["parts"]).log.fingerprint


LOGGING = {
    "probability": "probability:propensity",
    "dense list": "dense:mu",
    "dense columns": "dense:mu_*",
    "long": "table:{folder}/mu.parquet",
    "softmax": "softmax:{folder}/log_mu.parquet",
}


@pytest.mark.parametrize("form", LOGGING)
def test_the_logging_policy_in_the_same_forms(capsys, folder, written, form):
    _, _, _, logging, _, _ = logs.arrays()
    pq.write_table(logs.long_table(logging), folder / "mu.parquet")
    pq.write_table(logs.long_table(np.log(logging), "score"), folder / "log_mu.parquet")
    spec = LOGGING[form].format(folder=folder)
    options = ("--policy", "dense:pi", "--logging", spec, "--actions", folder / "actions.csv", "--no-learn")
    found = numbers(evaluate(capsys, written["log.parquet"], *options))
    whole = told(from_arrays(whole=form != "probability"))
    agree(found, whole, whole.keys() - {"Auto"})


def test_a_complete_logging_policy_makes_mips_possible(capsys, written):
    options = ("--policy", "dense:pi_*", "--logging", "dense:mu_*", "--estimators", "MIPS")
    # without action features the embedding is the action itself, and MIPS needs some
    assert "MIPS" in str(evaluate_error(capsys, written["log.parquet"], *options))


def evaluate_error(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", *map(str, arguments)])
    assert stop.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("contexts", [["x"], ["x_*"], ["x_0", "x_1", "x_2"], ["x_0", "x_*"]])
def test_contexts_as_a_list_a_prefix_or_columns(written, contexts):
    """All are the same log, byte for byte."""
    given = cael.read(written["log.parquet"], {"contexts": contexts})
    assert given.fingerprint == cael.read(written["log.csv"]).fingerprint


def test_a_context_free_table(capsys, folder, written):
    chances = [0.1, 0.2, 0.3, 0.2, 0.2]
    pq.write_table(pa.table({"action": list(logs.LABELS), "probability": chances}), folder / "free.parquet")
    found = numbers(evaluate(capsys, written["log.csv"], "--policy", folder / "free.parquet"))
    assert found["DR"][0] == pytest.approx(cael.DR().estimate(from_arrays(), chances).value)


def test_a_short_context_free_table_needs_a_rest_rule(capsys, folder, written):
    (folder / "short.csv").write_text("action,probability\napple,0.5\ncherry,0.3\n")
    assert "must sum to 1" in evaluate_error(capsys, written["log.csv"], "--policy", folder / "short.csv")
    table = cael.io.open_log(written["log.csv"])
    batch = next(table.log.batches(width=5))
    assert table.policy(f"{folder}/short.csv,rest=uniform").probabilities(batch)[0] == pytest.approx(
        [0.5, 0.2 / 3, 0.3, 0.2 / 3, 0.2 / 3]
    )
    assert table.policy(f"{folder}/short.csv,rest=renormalise").probabilities(batch)[0] == pytest.approx(
        [0.625, 0, 0.375, 0, 0]
    )


def test_scores_of_a_few_candidates_explore_among_these(folder, written):
    (folder / "few.csv").write_text(
        "decision_id,action,score\n" + "".join(f"d{i},apple,1.0\nd{i},date,2.0\n" for i in range(logs.N))
    )
    table = cael.io.open_log(written["log.parquet"])
    batch = next(table.log.batches(width=5))
    greedy = table.policy(f"greedy:{folder}/few.csv,epsilon=0.2").probabilities(batch)[0]
    assert greedy == pytest.approx([0.1, 0, 0, 0.9, 0])
    soft = table.policy(f"softmax:{folder}/few.csv,temperature=0.5").probabilities(batch)[0]
    assert soft == pytest.approx([1 / (1 + np.exp(2)), 0, 0, 1 / (1 + np.exp(-2)), 0])


def test_python_objects(monkeypatch, folder, written, truth):
    (folder / "my_models.py").write_text(
        "import numpy as np\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "import cael\n"
        "def function(contexts):\n"
        "    return np.full((len(contexts), 5), 0.2)\n"
        "rng = np.random.default_rng(0)\n"
        "classifier = LogisticRegression().fit(rng.normal(size=(50, 3)), np.array(['cherry', 'apple'] * 25))\n"
        "class Holder: policy = cael.Uniform(5)\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    table = cael.io.open_log(written["log.parquet"])
    with pytest.raises(
        cael.PolicyError, match="by position, and the actions are names, of which the log says no order"
    ):
        table.policy("python:my_models:function")
    table = cael.io.open_log(written["log.parquet"], actions=logs.ACTIONS)
    batch = next(table.log.batches(width=5))
    assert table.policy("python:my_models:function").probabilities(batch)[0] == pytest.approx([0.2] * 5)
    assert table.policy("python:my_models:Holder.policy") == cael.Uniform(5)
    from my_models import classifier

    found = table.policy("python:my_models:classifier").probabilities(batch)
    assert (found[:, [1, 3, 4]] == 0).all()
    assert found[:, [0, 2]] == pytest.approx(classifier.predict_proba(batch.contexts))


def test_action_table(folder, written):
    rows = {"action": [*reversed(logs.LABELS), "fig"], "sour": [3.0, 1.0, 2.0, 5.0, 4.0, 9.0], "colour": list("rgrgbb")}
    log = cael.read(written["log.parquet"], actions=pa.table(rows))
    assert log.n_actions == 6
    assert log.action_features.shape == (6, 4)
    assert log.action_features[0] == pytest.approx([3.0, 0, 0, 1])  # 'elder', the first row of the table
    plain = cael.read(written["log.parquet"])
    assert (log.actions == 4 - plain.actions).all()


def test_numbers_with_gaps_are_labels_unless_their_number_is_given():
    frame = pd.DataFrame({"action": [0, 3, 7, 3], "reward": [1.0, 0.0, 1.0, 1.0], "propensity": 0.5})
    table = cael.io.open_log(frame)
    assert (table.log.n_actions, table.actions) == (3, (0, 3, 7))
    assert list(table.log.actions) == [0, 1, 2, 1]
    assert "with gaps" in " ".join(table.notes)
    assert list(cael.read(frame, n_actions=10).actions) == [0, 3, 7, 3]


def test_categories_become_columns_and_a_missing_one_is_a_category():
    frame = pd.DataFrame(
        {
            "action": [0, 1, 0, 1],
            "reward": [1.0, 0, 1, 1],
            "propensity": 0.5,
            "x_a": ["u", None, "v", "u"],
            "x_b": range(4),
        }
    )
    table = cael.io.open_log(frame)
    assert table.log.contexts.tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 2], [1, 0, 0, 3]]
    assert "a category of their own" in " ".join(table.notes)


def test_folders_name_columns(tmp_path):
    table = logs.table()
    for country in ("be", "fr", "nl"):
        (tmp_path / f"country={country}").mkdir()
        part = table.filter(pa.compute.equal(table["country"], country)).drop_columns("country")
        pq.write_table(part, tmp_path / f"country={country}" / "part.parquet")
    found = cael.io.open_log(tmp_path, {"segment": "country"})
    ((name, labels),) = found.segments
    assert (name, dict(zip(*np.unique(labels, return_counts=True), strict=True))) == (
        "country",
        {"be": 100, "fr": 100, "nl": 100},
    )


def test_invalid_rows_are_dropped_on_request_only_and_reported(capsys, tmp_path, truth):
    table = logs.table().to_pandas()
    table.loc[7, "reward"] = np.nan
    table.loc[9, "propensity"] = 0.0
    table.loc[11, "action"] = None
    table.to_parquet(tmp_path / "log.parquet")
    with pytest.raises(cael.LogError, match=r"3 of 300 rows are invalid.*'action' is missing in 1 row \(row 11\)"):
        cael.read(tmp_path / "log.parquet")
    document = evaluate(capsys, tmp_path / "log.parquet", "--policy", "dense:pi_*", "--drop-invalid")
    assert document["reading"]["rows"] == 297
    assert sum(each["rows"] for each in document["reading"]["dropped"]) == 3
    assert "3 of 300 rows were left out" in document["reading"]["warnings"][0]
    x, actions, rewards, logging, target, _ = logs.arrays()
    keep = np.setdiff1d(np.arange(logs.N), [7, 9, 11])
    log = cael.LoggedData(x[keep], actions[keep], rewards[keep], logging[keep, actions[keep]])
    expected = cael.IPS().estimate(log, target[keep]).value
    assert numbers(document)["IPS"][0] == pytest.approx(expected)
    with pytest.warns(UserWarning, match="3 of 300 rows were left out"):
        cael.read(tmp_path / "log.parquet", drop_invalid=True)


def test_dropping_keeps_every_form_of_a_policy_aligned(tmp_path, folder, specs):
    frame = logs.table().to_pandas()
    frame.loc[[0, 50, 299], "reward"] = np.nan
    table = cael.io.open_log(frame, actions=logs.ACTIONS, drop_invalid=True)
    values = {form: cael.IPS().estimate(table.log, table.policy(spec)).value for form, spec in specs.items()}
    assert np.ptp(list(values.values())) < 1e-9


def test_places_name_the_file_of_a_row(tmp_path):
    table = logs.table().to_pandas()
    table.loc[150, "reward"] = np.inf
    for at in range(3):
        table.iloc[100 * at : 100 * at + 100].to_parquet(tmp_path / f"part-{at}.parquet")
    with pytest.raises(cael.LogError, match=r"row 150 \(part-1.parquet: 50\)"):
        cael.read(tmp_path)


def test_times():
    moments = pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)
    base = {"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]}
    for column in (moments, moments.tz_convert("Asia/Tokyo"), ["2026-01-01T00:00:00Z", "2026-01-02T01:00:00+01:00"]):
        found = cael.read(pd.DataFrame({**base, "time": column})).timestamps
        assert (found == np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[us]")).all()
    assert list(cael.read(pd.DataFrame({**base, "ts": [5, 7]})).timestamps) == [5, 7]
