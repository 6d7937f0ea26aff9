"""The example log: it is what its generator makes, its truth is known, and the verdict on it is right."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from cael.datasets import examples
from cael.datasets import news_world as news

NEW = "topk:new_articles+new_probabilities"


@pytest.fixture(scope="module")
def made():
    return news.generate()


@pytest.fixture(scope="module")
def table():
    return cael.io.open_log(examples.path(), {"segment": "country"}, actions=examples.path("articles.csv"))


def test_the_file_is_what_the_generator_makes(made, tmp_path):
    assert pq.read_table(examples.path()).to_pydict() == pa.table(made.columns).to_pydict()
    news.write(tmp_path)
    assert (tmp_path / "articles.csv").read_text() == examples.path("articles.csv").read_text()


def test_it_is_small():
    assert sum(examples.path(name).stat().st_size for name in examples.FILES) < 300 * 1024


def test_what_is_read(table):
    assert repr(table.log) == (
        "LoggedData(n=6000, n_actions=24, context_dim=5, propensities, action_features, clusters, timestamps)"
    )
    assert table.log.action_features.shape == (24, 6)
    assert table.actions[0] == "politics-1"


def test_the_truth_is_in_the_interval_and_the_lift_is_shown(made, table):
    found = cael.evaluate(table.log, table.policy(NEW))
    assert found.verdict.level == "ok"
    assert found.direction == "better"
    assert made.value(made.new) in found.best.interval(0.99)
    assert made.value(made.logging) in found.baseline.interval(0.99)


def test_the_audit_passes(table):
    assert cael.audit(table.log).status == "pass"


def test_propensities_are_those_of_the_logging_policy(made, table):
    logged = made.logging[np.arange(news.ROWS), [table_number(each) for each in made.columns["action"]]]
    assert np.abs(logged - table.log.propensities).max() < 1e-6


def table_number(name):
    section, number = name.split("-")
    return (int(number) - 1) * len(news.SECTIONS) + news.SECTIONS.index(section)


def test_copy(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["example", "news", str(tmp_path)])
    assert stop.value.code in (None, 0)
    assert {each.name for each in tmp_path.iterdir()} == set(examples.FILES)
    with pytest.raises(cael.InputError, match="is there already"):
        examples.copy(tmp_path)
    with pytest.raises(cael.InputError, match="there is no folder"):
        examples.copy(tmp_path / "none")
    with pytest.raises(cael.InputError, match="no file 'x'"):
        examples.path("x")
