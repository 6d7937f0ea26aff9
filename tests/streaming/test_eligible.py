"""Eligible actions of a log in files: the same numbers, checks and errors as in memory, by lists and by tables."""

import json
import resource
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
import cael.io
from cael.cli import main
from cael.log import budget
from tests.streaming.logs import write
from tests.streaming.test_one_verdict import same, same_evaluation

WORLD = cael.worlds.CatalogueWorld(n_actions=12, days=6, population=10)
LABELS = [f"item {number:02}" for number in range(12)]
ROLES = {"contexts": ["x_*"]}


def table_of(log, *, labels=LABELS, target=None):
    """The log as a table: eligible actions as lists, and the day of each row."""
    mask = log.eligible.mask()
    columns = {
        "action": [labels[action] for action in log.actions],
        "reward": log.rewards,
        "propensity": log.propensities,
        "day": log.timestamps,
        "available": [[labels[action] for action in np.flatnonzero(row)] for row in mask],
    }
    columns |= {f"x_{j}": log.contexts[:, j] for j in range(log.contexts.shape[1])}
    return pa.table(columns)


def catalogue(world, labels=LABELS, *, stretches=False):
    """The table of eligible actions: a row for each action and day, or for each action and stretch of days."""
    if not stretches:
        day, item = np.nonzero(world.on_sale)
        return pa.table({"item": [labels[action] for action in item], "day": day})
    rows = []
    for action in range(world.n_actions):
        turns = np.diff(np.concatenate([[0], world.on_sale[:, action].astype(int), [0]]))
        pairs = zip(np.flatnonzero(turns == 1), np.flatnonzero(turns == -1) - 1, strict=True)
        rows += [(labels[action], None if first == 0 else int(first), int(last)) for first, last in pairs]
    return pa.table(
        {"item": [row[0] for row in rows], "from": [row[1] for row in rows], "to": [row[2] for row in rows]}
    )


def forms(world, folder, labels=LABELS):
    """Ways to say which actions are eligible: (roles, further arguments)."""
    for name, stretches in (("days.parquet", False), ("stretches.parquet", True)):
        pyarrow.parquet.write_table(catalogue(world, labels, stretches=stretches), folder / name)
    mapping = {day: [labels[action] for action in np.flatnonzero(row)] for day, row in enumerate(world.on_sale)}
    return [
        ({"eligible": "available"}, {}),
        ({}, {"eligible": "available"}),
        ({"period": "day", "eligible": str(folder / "days.parquet")}, {}),
        ({"period": "day"}, {"eligible": folder / "stretches.parquet"}),
        ({"period": "day"}, {"eligible": mapping}),
    ]


@settings(max_examples=3, deadline=None)
@given(
    form=st.integers(0, 4),
    text=st.booleans(),
    known=st.booleans(),
    policy=st.sampled_from([WORLD.target, "uniform"]),
    n=st.integers(300, 600),
    cuts=st.lists(st.integers(1, 900), max_size=3),
    batch=st.sampled_from([70, 10_000]),
    seed=st.integers(0, 9),
)
def test_memory_and_files_say_the_same(form, text, known, policy, n, cuts, batch, seed):
    labels = LABELS if text else list(range(12))
    log = WORLD.sample(n, seed)
    given_as = {"actions": pa.table({"action": LABELS})} if text else {"n_actions": 12}
    given_as |= {"logging": WORLD.logging} if known else {}
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        where = write(Path(name) / "log", table_of(log, labels=labels), cuts, 333)
        roles, more = forms(WORLD, Path(name), labels)[form]
        here, there = (make(where, {**ROLES, **roles}, **given_as, **more) for make in (cael.read, cael.scan))
        assert (here.eligible.mask() == log.eligible.mask()).all()
        mine, other = (cael.evaluate(each, policy, learn=False) for each in (here, there))
        same_evaluation(mine, other)
        truth = cael.SNIPS().estimate(log, cael.Uniform(12) if policy == "uniform" else policy)
        assert np.isclose(mine["SNIPS"].value, truth.value, rtol=1e-9)
        same(*(Checks(cael.audit(each)) for each in (here, there)))


class Checks:
    """An audit with the names that a verdict has."""

    def __init__(self, audit):
        self.checks, self.level = audit.checks, audit.status


def test_lists_in_csv_files(tmp_path):
    log = WORLD.sample(200, 0)
    table = table_of(log)
    texts = pa.array([json.dumps(cell) for cell in table["available"].to_pylist()])
    pyarrow.csv.write_csv(table.set_column(4, "available", texts), tmp_path / "log.csv")
    for make in (cael.read, cael.scan):
        read = make(tmp_path / "log.csv", {**ROLES, "eligible": "available"})
        estimate = cael.evaluate(read, "uniform", learn=False)["SNIPS"]
        assert np.isclose(estimate.value, cael.SNIPS().estimate(log, cael.Uniform(12)).value)


def test_a_column_of_lists_with_the_usual_name_is_found_and_another_is_not(tmp_path):
    log = WORLD.sample(100, 0)
    table = table_of(log)
    assert cael.read(table).eligible is None
    named = table.rename_columns(["eligible" if name == "available" else name for name in table.column_names])
    assert cael.read(named).eligible is not None
    flags = table.append_column("eligible", pa.array([True] * 100))
    assert cael.read(flags).eligible is None
    with pytest.raises(cael.InputError, match="column 'eligible' must hold lists"):
        cael.read(flags, {"eligible": "eligible"})


# Bad input: the same flaws in the same rows


def broken(change):
    log = WORLD.sample(60, 0)
    table = table_of(log)
    lists, days = table["available"].to_pylist(), table["day"].to_pylist()
    for row in (7, 31):
        change(lists, days, row, table["action"][row].as_py())
    table = table.set_column(4, "available", pa.array(lists, pa.list_(pa.string())))
    return table.set_column(3, "day", pa.array(days, pa.int64()))


FLAWS = {
    "without the logged action": (lambda lists, _, row, action: lists[row].remove(action), "does not list the logged"),
    "empty": (lambda lists, _, row, action: lists[row].clear(), "is an empty list"),
    "null": (lambda lists, _, row, action: lists.__setitem__(row, None), "is missing"),
    "twice": (lambda lists, _, row, action: lists[row].append(action), "lists an action twice"),
    "unknown": (lambda lists, _, row, action: lists[row].append("item 77"), "has an entry that is not among the"),
    "a null in it": (lambda lists, _, row, action: lists[row].append(None), "has an entry that is missing"),
}
OF_PERIODS = {
    "unknown": (lambda lists, days, row, action: days.__setitem__(row, 99), "is not a period of the table of eligible"),
    "missing": (lambda lists, days, row, action: days.__setitem__(row, None), "is missing"),
    "another": (
        lambda lists, days, row, action: days.__setitem__(
            row, int(np.flatnonzero(~WORLD.on_sale[:, LABELS.index(action)])[0])
        ),
        "is a period in which the logged action is not eligible",
    ),
}


def all_flaws():
    known = {"actions": pa.table({"action": LABELS})}
    for name, (change, what) in FLAWS.items():
        yield pytest.param(change, what, {"eligible": "available"}, known, id=name)
    for name, (change, what) in OF_PERIODS.items():
        for stretches in (False, True):
            given_as = {**known, "eligible": catalogue(WORLD, stretches=stretches)}
            yield pytest.param(change, what, {"period": "day"}, given_as, id=f"period {name} {stretches}")


@pytest.mark.parametrize(("change", "what", "roles", "given_as"), list(all_flaws()))
def test_bad_lists_are_refused_with_counts_and_rows_and_left_out_where_that_is_asked_for(
    change, what, roles, given_as, tmp_path
):
    where = write(tmp_path / "log", broken(change), [20], 15)
    roles = {**ROLES, **roles}
    pattern = rf"2 of 60 rows are invalid: column '(available|day)' {what}.* in 2 rows \(rows? 7( \(.*\))?, (rows )?31"
    with pytest.raises(cael.LogError, match=pattern):
        cael.read(where, roles, **given_as)
    with pytest.raises(cael.LogError, match=pattern):
        cael.evaluate(cael.scan(where, roles, **given_as), "uniform", learn=False)
    with pytest.warns(UserWarning, match="2 of 60 rows were left out"):
        here = cael.read(where, roles, **given_as, drop_invalid=True)
    assert len(here) == 58
    with pytest.warns(UserWarning, match="2 of 60 rows were left out"):
        there = cael.evaluate(cael.scan(where, roles, **given_as, drop_invalid=True), "uniform", learn=False)
    assert np.isclose(there["SNIPS"].value, cael.SNIPS().estimate(here, cael.Uniform(12)).value)


def test_tables_of_eligible_actions_that_are_wrong_are_refused():
    table, right = table_of(WORLD.sample(60, 0)), catalogue(WORLD)
    stretches = catalogue(WORLD, stretches=True)
    turned = pa.table({"item": [LABELS[0]], "from": [3], "to": [1]})
    cases = [
        (pa.concat_tables([right, right.slice(0, 1)]), "lists an action twice in 1 of 6 periods"),
        (pa.concat_tables([stretches, stretches.slice(0, 1)]), "lists an action twice in"),
        (pa.concat_tables([right, pa.table({"item": ["item 77"], "day": [0]})]), "is not among the actions.*n_actions"),
        (right.slice(0, 0), "has no rows"),
        (right.rename_columns(["item", "when"]), "needs a column 'period' .or 'day'., or two columns 'from' and 'to'"),
        (right.rename_columns(["what", "day"]), "needs a column 'action'"),
        (turned, "its columns 'from' and 'to' are in the wrong order in row 0"),
        ({}, "has no entry"),
        (3, "int"),
    ]
    for wrong, message in cases:
        with pytest.raises(cael.InputError, match=message):
            cael.read(table, {"period": "day"}, eligible=wrong, actions=pa.table({"action": LABELS}))
    with pytest.raises(cael.InputError, match="name it with the role period"):
        cael.read(table, eligible=right)
    with pytest.raises(cael.InputError, match="of no use without a table of eligible actions"):
        cael.read(table, {"period": "day"})
    ends = {"from": pa.array([None] * 12, pa.timestamp("us")), "to": pa.array([10**15] * 12, pa.timestamp("us"))}
    times = pa.table({"item": LABELS, **ends})
    with pytest.raises(cael.InputError, match=r"holds numbers, and the table .* has times"):
        cael.read(table, {"period": "day"}, eligible=times, actions=pa.table({"action": LABELS}))


def test_a_target_that_plays_other_actions_is_refused_with_its_place(tmp_path):
    where = write(tmp_path / "log", table_of(WORLD.sample(60, 0)), [20], 15)
    scanned = cael.scan(where, {**ROLES, "eligible": "available"}, actions=pa.table({"action": LABELS}))
    message = r"plays actions that are not eligible in \d+ of \d+ rows looked at.*part-0\d.parquet at rows 0"
    with pytest.raises(cael.PolicyError, match=message):
        cael.evaluate(scanned, np.full(12, 1 / 12), learn=False)
    assert cael.evaluate(scanned, cael.AmongEligible(np.full(12, 1 / 12)), learn=False)["IPS"].value >= 0


def test_a_table_of_scores_takes_the_best_eligible_action(tmp_path):
    log = WORLD.sample(100, 0)
    where = write(tmp_path / "log", table_of(log), [20], 15)
    given_as = {"actions": pa.table({"action": LABELS}), "columns": {**ROLES, "eligible": "available"}}
    scores = np.arange(12.0) % 5
    pyarrow.parquet.write_table(pa.table({"action": LABELS[::-1], "score": scores[::-1]}), tmp_path / "scores.parquet")
    for epsilon in (0.0, 0.2):
        text = f"greedy:{tmp_path}/scores.parquet,epsilon={epsilon}"
        policy = cael.EpsilonGreedy(scores, epsilon)
        expected = cael.SNIPS().estimate(cael.read(where, **given_as), policy).value
        for log_read in (cael.read(where, **given_as), cael.scan(where, **given_as)):
            assert np.isclose(cael.evaluate(log_read, text, learn=False)["SNIPS"].value, expected)


def test_choices_explore_among_eligible_actions(tmp_path):
    log = WORLD.sample(100, 0)
    table = table_of(log)
    best = [cell[0] for cell in table["available"].to_pylist()]
    where = write(tmp_path / "log", table.append_column("best", pa.array(best)), [40], 15)
    spec = {"kind": "choice", "column": "best", "epsilon": 0.3}
    roles, known = {**ROLES, "eligible": "available"}, {"actions": pa.table({"action": LABELS})}
    first = log.eligible.at(np.zeros((100, 1), dtype=int))[:, 0]
    p = 0.3 / log.eligible.sizes + 0.7 * (log.actions == first)
    expected = (p / log.propensities * log.rewards).mean()
    for make in (cael.read, cael.scan):
        assert np.isclose(cael.IPS().estimate(make(where, roles, **known), text_of(spec)).value, expected)


def text_of(spec):
    return f"choice:{spec['column']},epsilon={spec['epsilon']}"


def test_a_scanned_log_estimates_its_logging_policy_within_the_sets(tmp_path):
    log = WORLD.sample(600, 0)
    where = write(tmp_path / "log", table_of(log).drop_columns(["propensity"]), [250], 200)
    roles, known = {**ROLES, "eligible": "available"}, {"actions": pa.table({"action": LABELS})}
    scanned = cael.scan(where, roles, **known)
    with pytest.warns(UserWarning, match="no logged propensities"):
        there = cael.evaluate(scanned, "uniform", learn=False)
    with pytest.warns(UserWarning, match="no logged propensities"):
        here = cael.read(where, roles, **known)
    assert np.isclose(there["SNIPS"].value, cael.SNIPS().estimate(here, cael.Uniform(12)).value, rtol=1e-6)
    truth = WORLD.value(cael.Uniform(12))
    assert truth in there["SNIPS"].interval(0.999)


def test_fingerprints_of_scanned_logs_hold_the_sets(tmp_path):
    where = write(tmp_path / "log", table_of(WORLD.sample(60, 0)), [20], 15)
    other = cael.worlds.CatalogueWorld(n_actions=12, days=6, population=10, seed=1)
    known, roles = {"actions": pa.table({"action": LABELS})}, {**ROLES, "period": "day"}
    prints = {cael.scan(where, roles, eligible=catalogue(each), **known).fingerprint for each in (WORLD, other)}
    prints.add(cael.scan(where, ROLES, **known).fingerprint)
    prints.add(cael.scan(where, {**ROLES, "eligible": "available"}, **known).fingerprint)
    assert len(prints) == 4


@pytest.mark.long
def test_the_commands_take_a_column_and_a_table(tmp_path, capsys):
    log = WORLD.sample(3000, 0)
    where = write(tmp_path / "log", table_of(log, labels=list(range(12))), [1000], 500)
    forms(WORLD, tmp_path, list(range(12)))
    values = []
    for more in (["--eligible", "available"], ["--eligible", str(tmp_path / "days.parquet"), "--period", "day"]):
        common = [str(where), "--contexts", "x_*", "--n-actions", "12", *more, "--format", "json"]
        for command in (["evaluate", "--policy", "uniform", "--no-learn"], ["audit"], ["plan", "--policy", "uniform"]):
            with pytest.raises(SystemExit) as end:
                main([command[0], common[0], *command[1:], *common[1:]])
            printed = json.loads(capsys.readouterr().out)
            assert end.value.code in (0, None), printed
            if command[0] == "evaluate":
                values.append(printed["estimates"][2]["value"])
    assert values[0] == values[1]
    assert np.isclose(values[0], cael.SNIPS().estimate(log, cael.Uniform(12)).value)


@pytest.mark.long
def test_five_thousand_items_over_ninety_days_in_a_stream(tmp_path):
    """Neither the log nor its sets take memory: n k numbers would be 6 GB, and one list for each row 1.2 GB."""
    world = cael.worlds.CatalogueWorld(
        n_actions=5000, days=90, share=0.2, gamma=0.0, delta=2.0, population=20, level=-1.0
    )
    log = world.sample(150_000, 1)
    labels = list(range(5000))
    columns = {"action": log.actions, "reward": log.rewards, "propensity": log.propensities, "day": log.timestamps}
    columns |= {f"x_{j}": log.contexts[:, j] for j in range(3)}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=20_000)
    pyarrow.parquet.write_table(catalogue(world, labels), tmp_path / "items.parquet")
    roles = {**ROLES, "period": "day", "timestamp": "day", "eligible": str(tmp_path / "items.parquet")}
    given_as = {"n_actions": 5000, "logging": "uniform"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scanned = cael.scan(tmp_path / "log.parquet", roles, **given_as, memory="512MiB", workers=1)
    audit = cael.audit(scanned)
    assert audit.status == "pass", audit
    there = cael.evaluate(scanned, world.target, learn=False)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 512
    assert there.verdict.level == "ok", there.verdict
    assert world.value(world.target) in there["SNDR"].interval(0.99)
    here = cael.evaluate(cael.read(tmp_path / "log.parquet", roles, **given_as), world.target, learn=False)
    for mine, other in zip(here, there, strict=True):
        assert np.isclose(mine.value, other.value, rtol=1e-9), mine.estimator
        assert np.isclose(mine.stderr, other.stderr, rtol=1e-9), mine.estimator
    assert [check.status for check in here.verdict.checks] == [check.status for check in there.verdict.checks]
    without = cael.scan(tmp_path / "log.parquet", ROLES, n_actions=5000, memory="512MiB", workers=1)
    assert "the role eligible" in cael.audit(without)["sums"].sentence
