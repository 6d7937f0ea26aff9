"""Learned policies as files and as code give the same decisions as in memory."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cael
from cael.errors import InputError, NeedsError, PolicyError
from cael.learning.candidates import KINDS
from cael.learning.decisions import COLUMNS, decisions_of, write_decisions
from cael.learning.saved import digest
from cael.policies.policy import probabilities


@pytest.fixture(scope="module")
def example():
    return cael.read(cael.examples.path())


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_is_saved_and_read_gives_the_same_probabilities_to_the_bit(log, kind, tmp_path):
    learned = cael.learn(log, candidates=[kind], explore=0.05)
    path = learned.save(tmp_path / "policy.json")
    read = cael.read_policy(path)
    assert np.array_equal(probabilities(read, log.whole), probabilities(learned.policy, log.whole))
    assert repr(read) == repr(learned.policy)
    json.loads(path.read_text())


def test_a_spec_reads_the_file_in_memory_and_in_files(example, tmp_path):
    learned = cael.learn(example)
    path = learned.save(tmp_path / "policy.json")
    spec = f"learned:{path}"
    there = cael.evaluate(example, learned.policy, learn=False).best.value
    assert cael.evaluate(example, spec, learn=False).best.value == there
    assert cael.evaluate(cael.scan(cael.examples.path()), spec, learn=False).best.value == pytest.approx(
        there, rel=1e-12
    )


def test_memory_and_files_learn_the_same(example):
    one, other = cael.learn(example), cael.learn(cael.scan(cael.examples.path()))
    assert one.policy.kind == other.policy.kind
    assert np.array_equal(probabilities(one.policy, example.whole), probabilities(other.policy, example.whole))
    assert one.lift.value == pytest.approx(other.lift.value, rel=1e-12)
    assert one.bound == pytest.approx(other.bound, rel=1e-9)
    assert one.evaluation.best.n == other.evaluation.best.n
    assert one.decision == other.decision


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda document: document.update(format="cael.policy/9"), "expected the format"),
        (lambda document: document["policy"].update(part="os.system"), "unknown part"),
        (lambda document: document.pop("policy"), "no file of a learned policy"),
        (lambda document: document["policy"].pop("rule"), "can be used"),
        (lambda document: document["policy"].update(part="Play"), "can be used"),
    ],
)
def test_files_that_are_wrong_are_refused(log, change, match, tmp_path):
    path = cael.learn(log, candidates=["tree"]).save(tmp_path / "policy.json")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    if "policy" in document and "expected" not in match:
        with pytest.raises(PolicyError, match="was changed after it was saved"):
            cael.read_policy(path)
        path.write_text(json.dumps({**document, "sha256": digest(document["policy"])}))
    with pytest.raises(PolicyError, match=match):
        cael.read_policy(path)


def test_a_policy_for_other_actions_or_contexts_is_refused(log, example, tmp_path):
    path = cael.learn(log, candidates=["tree"]).save(tmp_path / "policy.json")
    with pytest.raises(PolicyError, match="was learned for the actions"):
        cael.evaluate(example, f"learned:{path}", learn=False)
    with pytest.raises(PolicyError, match="3 contexts"):
        probabilities(cael.read_policy(path), cael.LoggedData(None, log.actions, log.rewards, n_actions=5).whole)
    with pytest.raises(InputError, match=r"\.json"):
        cael.learn(log, candidates=["tree"]).save(tmp_path / "policy.txt")


def test_an_old_policy_that_is_a_function_is_read_from_the_log(tmp_path):
    world = cael.worlds.MixedWorld("linear", "normal", cael.worlds.Play("softmax", 0.5), n_actions=4, context_dim=2)
    log = world.sample(900, 1)
    learned = cael.learn(log, candidates=["ridge"])
    path = learned.save(tmp_path / "policy.json")
    assert np.array_equal(
        probabilities(cael.read_policy(path, log), log.whole), probabilities(learned.policy, log.whole)
    )
    with pytest.raises(PolicyError, match="leans on the logging policy"):
        cael.read_policy(path)


@pytest.mark.parametrize("kind", ["tree", "linear", "best_arm"])
def test_code_decides_as_the_policy_does(example, kind):
    duckdb = pytest.importorskip("duckdb")
    learned = cael.learn(example, candidates=[kind], single=True, depth=3)
    names = learned.policy.contexts
    rng = np.random.default_rng(0)
    contexts = example.contexts[rng.integers(0, len(example), 300)] + 0.1 * rng.standard_normal((300, len(names)))
    batch = cael.worlds.world.unlogged(contexts, example.n_actions)
    p = probabilities(learned.policy, batch)
    labels = np.array(learned.policy.labels, dtype=object)
    decided = np.where(p.max(axis=1) == 1, labels[p.argmax(axis=1)], None)
    space = {}
    exec(learned.to_python(), space)
    assert [space["decide"](dict(zip(names, row, strict=True))) for row in contexts.tolist()] == decided.tolist()
    import pandas as pd

    decisions = pd.DataFrame(contexts, columns=list(names))
    assert len(decisions) == 300
    assert duckdb.sql(learned.to_sql()).df()["action"].replace({np.nan: None}).tolist() == decided.tolist()


def test_what_cannot_be_written_as_code_says_so(log):
    learned = cael.learn(log, candidates=["ridge"])
    for write in (learned.to_python, learned.to_sql):
        with pytest.raises(NeedsError, match="single"):
            write()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_decisions_are_a_table(example, ending, tmp_path):
    import pandas as pd

    learned = cael.learn(example, candidates=["tree"])
    path = write_decisions(learned.policy, example, tmp_path / f"d.{ending}")
    frame = (pd.read_csv if ending == "csv" else pd.read_parquet)(path)
    assert tuple(frame.columns) == COLUMNS
    assert frame["action"].tolist() == decisions_of(learned.policy, example)[1]
    assert len(frame) == len(example)
