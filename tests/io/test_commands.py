"""Commands on tables: exit codes, JSON that keeps its schema, Markdown, configuration files."""

import json
import re
import subprocess
import sys

import jsonschema
import numpy as np
import pandas as pd
import pytest

import cael
from cael.cli import main
from cael.cli.schema import DOCUMENTS, schema_of


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log on which action 2 is the best of three and action 0 the worst; all propensities are right."""
    rng = np.random.default_rng(0)
    n = 2000
    x = rng.normal(size=n)
    action = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "item": action,
            "clicked": (rng.random(n) < 0.2 + 0.2 * action).astype(int),
            "pscore": 1 / 3,
            "x_age": x,
            "country": rng.choice(["be", "nl"], n),
            "time": np.arange(n),
            "good": 2,
            "bad": 0,
            "sure": 1.0,
        }
    )
    path = tmp_path_factory.mktemp("commands") / "log.parquet"
    frame.to_parquet(path)
    return path


def test_a_better_policy(capsys, log):
    for options, headline in ((), "Auto"), (("--no-learn",), "SNDR"):
        code, out, _ = run(capsys, "evaluate", log, "--policy", "choice:good", "--gate", *options)
        assert code == 0
        assert f"verdict: ok ({headline})" in out
        assert re.search(r"lift over the logging policy: \+0\.\d+ \(\+\d+\.\d%\) .*, better", out)
    assert "Columns: action = 'item'; reward = 'clicked'; propensity = 'pscore'" in " ".join(out.split())


def test_policies_of_which_only_logged_actions_are_known_are_compared_too(capsys, log):
    frame = pd.read_parquet(log)
    frame["p"] = np.where(frame["item"] == 2, 0.8, 0.1)
    frame.to_parquet(log.with_name("logged.parquet"))
    compare = ("compare", log.with_name("logged.parquet"), "--policy", "p", "--format", "json")
    for options, estimator in ((), "Auto"), (("--no-learn",), "SNIPS"):
        code, out, _ = run(capsys, *compare, *options)
        assert code == 0
        assert json.loads(out)["policies"][0]["estimate"]["estimator"] == estimator


def test_a_worse_policy_exits_with_4_at_the_gate_only(capsys, log):
    assert run(capsys, "evaluate", log, "--policy", "choice:bad")[0] == 0
    assert run(capsys, "evaluate", log, "--policy", "choice:bad", "--gate")[0] == 4
    both = ("--policy", "good=choice:good", "--policy", "bad=choice:bad")
    assert run(capsys, "compare", log, *both)[0] == 0
    assert run(capsys, "compare", log, *both, "--gate")[0] == 4


def test_an_answer_that_is_not_to_be_trusted_exits_with_3(capsys, log, tmp_path):
    """Even at the gate: of a number that is refused nobody knows whether it is worse."""
    for gate in ((), ("--gate",)):
        code, out, _ = run(capsys, "evaluate", log, "--policy", "probability:sure", *gate)
        assert (code, "verdict: refuse" in out) == (3, True)
    assert run(capsys, "compare", log, "--policy", "probability:sure", "--estimator", "SNIPS", "--gate")[0] == 3
    wrong = pd.read_parquet(log).assign(pscore=0.9)
    wrong.to_parquet(tmp_path / "wrong.parquet")
    assert run(capsys, "audit", tmp_path / "wrong.parquet")[0] == 3
    assert run(capsys, "audit", log)[0] == 0


def test_no_support_is_refused(capsys, log, tmp_path):
    one = pd.read_parquet(log).assign(item=0, pscore=1.0)
    one.to_parquet(tmp_path / "one.parquet")
    code, out, _ = run(capsys, "evaluate", tmp_path / "one.parquet", "--policy", "choice:good", "--n-actions", "3")
    assert (code, "verdict: refuse" in out) == (3, True)


EVERYTHING = ("--policy", "choice:good,epsilon=0.1")
DOCUMENTED = {
    "evaluation": ("evaluate", *EVERYTHING, "--segment", "country", "--windows", "3", "--calibrate"),
    "comparison": ("compare", "--policy", "a=choice:good", "--policy", "b=uniform"),
    "audit": ("audit",),
    "plan": ("plan", *EVERYTHING, "--lift", "5%"),
    "learned": ("learn", "--candidates", "tree", "--depth", "1"),
}


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_the_json_keeps_its_schema(capsys, log, kind):
    command, *options = DOCUMENTED[kind]
    code, out, err = run(capsys, command, log, *options, "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    jsonschema.validate(document, schema_of(kind))
    assert document["schema"] == f"cael.{kind}/1"
    assert document["reading"]["columns"]["action"] == "item"


def test_every_document_has_a_schema():
    assert {*DOCUMENTED, "watch"} == set(DOCUMENTS)  # that of watch: tests/learning/test_watch.py
    for kind in DOCUMENTS:
        jsonschema.Draft202012Validator.check_schema(schema_of(kind))


def test_a_calibration_with_an_estimator_that_always_fails_keeps_the_schema(capsys, log, tmp_path):
    """No logged action is the policy's, so SNIPS has no weight to divide by and its error is not known."""
    pd.read_parquet(log).assign(good=3).to_parquet(tmp_path / "unseen.parquet")
    options = ("--policy", "choice:good", "--n-actions", "4", "--calibrate", "--format", "json")
    code, out, _ = run(capsys, "evaluate", tmp_path / "unseen.parquet", *options)
    document = json.loads(out)
    rows = {row["estimator"]: row for row in document["calibration"]["rows"]}
    assert code == 3
    assert rows["SNIPS"]["rmse"] is None
    assert rows["SNIPS"]["failed"] == 90  # 30 logs of 3 kinds
    assert rows["DM"]["rmse"] > 0
    jsonschema.validate(document, schema_of("evaluation"))


@pytest.mark.parametrize("broken", ["verdict", "estimates", "lift", "fingerprint"])
def test_a_document_without_a_promised_key_fails_its_schema(capsys, log, broken):
    document = json.loads(run(capsys, "evaluate", log, *EVERYTHING, "--format", "json")[1])
    del document[broken]
    with pytest.raises(jsonschema.ValidationError, match=f"'{broken}' is a required property"):
        jsonschema.validate(document, schema_of("evaluation"))


def test_demo_keeps_the_schema_too(capsys):
    out = run(capsys, "demo", "--rows", "200", "--actions", "5", "--format", "json")[1]
    jsonschema.validate(json.loads(out), schema_of("evaluation"))


def test_schema_prints_the_schema(capsys):
    assert json.loads(run(capsys, "schema", "plan")[1]) == schema_of("plan")


def test_the_json_is_what_the_function_gives(capsys, log):
    out = run(capsys, "plan", log, "--policy", "choice:good", "--lift", "0.05", "--format", "json")[1]
    table = cael.io.open_log(log)
    found = cael.plan(table.log, table.policy("choice:good"), lift=0.05, relative=False)
    told = json.loads(out)
    assert (told["rows_needed"], told["lift"]) == (found.rows_needed, 0.05)


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_markdown(capsys, log, kind):
    command, *options = DOCUMENTED[kind]
    code, out, _ = run(capsys, command, log, *options, "--format", "markdown")
    assert code == 0
    tables = [line for line in out.splitlines() if line.startswith("|")]
    assert len(tables) >= 3
    assert "\x1b" not in out


def test_text_of_the_data_cannot_break_out_of_markdown(capsys, log, tmp_path):
    frame = pd.read_parquet(log)
    frame["country"] = np.where(frame["country"] == "be", "a | b\n# <script>", "nl")
    frame.to_parquet(tmp_path / "log.parquet")
    options = ("--policy", "choice:good", "--segment", "country", "--format", "markdown")
    out = run(capsys, "evaluate", tmp_path / "log.parquet", *options)[1]
    assert "a \\| b \\# \\<script\\>" in out


def test_names_of_policies_are_no_markup(capsys, monkeypatch, log):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = run(capsys, "compare", log, "--policy", "[/red]=choice:good", "--policy", "[bold]b=uniform")
    assert code == 0
    assert "[/red]" in out
    assert "[bold]b" in out
    assert run(capsys, "evaluate", log, "--policy", "[/x]=choice:good")[0] == 0


def test_segments_and_windows_are_named(capsys, log):
    out = run(capsys, "evaluate", log, "--policy", "choice:good", "--segment", "country", "--windows", "2")[1]
    assert "segments: country" in out
    assert "windows" in out


def test_a_report(capsys, log, tmp_path):
    out = tmp_path / "report.html"
    options = ("--policy", "new <policy>=choice:good", "--segment", "country", "good", "--windows", "2", "--out", out)
    code, _, err = run(capsys, "evaluate", log, *options)
    page = out.read_text("utf-8")
    assert (code, err.strip()) == (0, f"wrote {out}")
    assert len(page) < 300 * 1024
    assert "new &lt;policy&gt;" in page
    assert "new <policy>" not in page
    for word in ("Auto", "SNDR", "By country", "By good", "By time period", "log.parquet", "be", "Audit"):
        assert word in page
    code, _, _ = run(capsys, "compare", log, "--policy", "a=choice:good", "--policy", "b=uniform", "--out", out)
    assert code == 0
    page = out.read_text("utf-8")
    assert ">b<" in page
    assert "a=choice:good, b=uniform" in page


def test_actions_are_called_by_their_names(capsys, log, tmp_path):
    """In the JSON, in the audit's sentences and in the report."""
    frame = pd.read_parquet(log)
    names = np.array(["apple", "<banana>", "cherry"])
    frame = frame.assign(item=names[frame["item"]], good=names[2])
    frame.to_parquet(tmp_path / "named.parquet")
    report = tmp_path / "report.html"
    options = ("--policy", "choice:good,epsilon=0.5", "--format", "json", "--out", report)
    document = json.loads(run(capsys, "evaluate", tmp_path / "named.parquet", *options)[1])
    assert {each["label"] for each in document["overlap"]["actions"]} == set(names)
    page = report.read_text("utf-8")
    assert "cherry" in page
    assert "&lt;banana&gt;" in page
    assert "<banana>" not in page
    wrong = frame.assign(pscore=np.where(frame["item"] == "cherry", 0.6, 0.2))
    wrong.to_parquet(tmp_path / "wrong.parquet")
    assert "action cherry has" in " ".join(run(capsys, "audit", tmp_path / "wrong.parquet")[1].split())


CONFIG = """
log = "{log}"
level = 0.9
lift = "10%"

[columns]
contexts = ["x_age"]
segment = "country"

[policies.good]
kind = "choice"
column = "good"
epsilon = 0.1

[policies.even]
kind = "uniform"

[evaluate]
policy = "choice:bad"
level = 0.8
"""


@pytest.fixture
def config(log, tmp_path):
    (tmp_path / "cael.toml").write_text(CONFIG.format(log=log))
    return tmp_path / "cael.toml"


def test_a_configuration_file(capsys, log, config):
    """Keys for all commands, a table for one, policies by name; the command line wins."""
    document = json.loads(run(capsys, "compare", "--config", config, "--format", "json")[1])
    assert [row["name"] for row in document["policies"]] == ["good", "even"]
    assert document["level"] == 0.9
    assert document["reading"]["columns"]["contexts"] == ["x_age"]
    document = json.loads(run(capsys, "evaluate", "--config", config, "--format", "json")[1])
    assert (document["policy"], document["level"]) == ("choice:bad", 0.8)
    assert list(document["segments"]) == ["country"]
    given = ("--policy", "choice:good", "--level", "0.5", "--format", "json")
    document = json.loads(run(capsys, "evaluate", log, f"--config={config}", *given)[1])
    assert (document["policy"], document["level"]) == ("choice:good", 0.5)
    document = json.loads(run(capsys, "plan", "--config", config, "--policy", "choice:good", "--format", "json")[1])
    assert document["lift"] == pytest.approx(0.1 * document["baseline"])
    assert json.loads(run(capsys, "audit", "--config", config, "--format", "json")[1])["status"] == "pass"


def test_a_configuration_does_not_stay(capsys, log, config):
    run(capsys, "evaluate", "--config", config)
    document = json.loads(run(capsys, "evaluate", log, "--policy", "choice:good", "--format", "json")[1])
    assert document["level"] == 0.95


@pytest.mark.long
def test_the_same_seed_gives_the_same_bytes(capsys, log):
    options = ("evaluate", log, *EVERYTHING, "--calibrate", "--format", "json", "--seed", "3")
    assert run(capsys, *options)[1] == run(capsys, *options)[1]


def test_help_names_every_kind_of_policy(capsys):
    out = run(capsys, "evaluate", "--help")[1]
    for kind in ("probability:", "dense:", "topk:", "table:", "choice:", "softmax:", "greedy:", "python:", "uniform"):
        assert kind in out


def test_a_quick_answer_loads_no_arrow():
    """`cael --help` and logs that are arrays need neither pyarrow nor pandas."""
    code = (
        "import sys\nfrom cael.cli import main\n"
        "try:\n    main(['evaluate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('pyarrow', 'pandas', 'scipy', 'sklearn') if m in sys.modules], file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr.strip() == "[]"


def test_reading_a_table_needs_no_pandas(log):
    """Tables come in through Arrow alone."""
    code = (
        "import sys\nclass Absent:\n    def find_spec(self, name, *more):\n"
        "        if name.partition('.')[0] in ('pandas', 'polars', 'duckdb'):\n            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"import cael\ntable = cael.io.open_log({str(log)!r}, {{'segment': 'country'}})\n"
        "print(cael.evaluate(table.log, table.policy('choice:good')).verdict.level)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "ok"
