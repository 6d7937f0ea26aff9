"""The judgement of trust: what it runs, that it goes on, and that its sums are those of the logs."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.experiments import trust, trust_counts, trust_page, trust_summary
from cael.experiments.ledger import read_lines
from cael.experiments.trust import Files, Sizes, Task, listed, planned
from cael.experiments.trust_rows import keep, kept, version

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
TINY = Sizes(logs=0, broken=0, plain=2, population=0, joint=1, joint_learned=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A run of two worlds without learning, and of compare and segments."""
    folder = tmp_path_factory.mktemp("trust")
    tasks = planned(TINY, 7000, ["A/B test", "rare clicks, equal arms", "joint"])
    facts = trust.run(Files(folder / "trust.json", folder / "rows.jsonl"), tasks)
    return folder, tasks, facts


def made(world, seed, value, low, high, **changes):
    """A sound log of truth 1 by hand: Auto as given, SNDR 1.2 in [0.9, 1.5], both lifts half a unit lower."""
    learned = {
        "level": "ok", "best": [value, low, high], "lift": [value - 0.5, low - 0.5, high - 0.5], "seconds": 4.0,
        "checks": {"drift": ["pass", 0.1]},
        "estimates": {"Auto": [value, low, high], "SNDR": [1.2, 0.9, 1.5], "SNIPS": [1.3, 0.9, 1.6], "DM": [1.0, 1, 1]},
    }  # fmt: skip
    plain = {**learned, "best": [1.2, 0.9, 1.5], "lift": [0.7, 0.4, 1.0], "seconds": 2.0}
    facts = {"n": 500, "k": 5, "overlap": 2000.0, "truth": 1.0, "true_lift": 0.5, "spread": 2.0}
    task = {"kind": "evaluate", "world": world, "seed": seed, "condition": trust_counts.SOUND, "estimator": ""}
    return {**task, **facts, "learn": True, "plain": plain, "learned": learned, **changes}


def test_every_world_of_the_issue_is_listed():
    assert len(listed()) >= 24
    assert set(cael.worlds.suite()) | set(cael.worlds.wide()) <= set(listed())


def test_the_plan_has_each_task_once_and_takes_worlds_in_turn():
    tasks = planned(Sizes(2, 1, 3, 4, 2, 1), 7000, (), ["CAEL"])
    assert len(set(tasks)) == len(tasks) and min(task.seed for task in tasks if task.world in listed()) == 7000
    names = list(dict.fromkeys(task.world for task in tasks if task.world in listed()))
    assert [task.world for task in tasks if task.estimator][: len(names)] == names
    drawn = [task for task in tasks if task.world.startswith("population") and task.kind == "evaluate"]
    assert len(drawn) == 8 and all(task.learn for task in drawn)
    assert sum(task.learn for task in tasks if task.world == "A/B test") == 2 + 9


def test_a_run_goes_on_where_it_was(files):
    folder, tasks, facts = files
    lines = (folder / "rows.jsonl").read_text().splitlines()
    assert len(lines) == len(tasks) == 2 * 2 * 10 + 4
    (folder / "part.jsonl").write_text("\n".join(lines[:10]) + "\n" + lines[11][:30])  # killed in the middle of a line
    again = trust.run(Files(folder / "again.json", folder / "part.jsonl"), tasks)
    after = (folder / "part.jsonl").read_text().splitlines()
    assert after[:10] == lines[:10] and len(after) == len(tasks)
    assert without_time(again) == without_time(facts)


def test_a_run_that_has_no_more_time_goes_on_next_time(tmp_path, capsys):
    tasks = planned(TINY, 7000, ["rare clicks, equal arms"])[:3]
    out, rows = tmp_path / "trust.json", tmp_path / "rows.jsonl"
    assert trust.run(Files(out, rows), tasks, seconds=0.0) is None
    assert not out.exists() and "3 of 3 are left" in capsys.readouterr().err
    assert trust.run(Files(out, rows), tasks, seconds=600.0) is not None
    assert out.exists() and len(read_lines(rows)) == 3


def test_kept_rows_are_enough_to_go_on_elsewhere(files, tmp_path, monkeypatch):
    """The file of kept rows, without the lines of the run: nothing is run, and the tables are the same."""
    folder, tasks, facts = files
    keep(tmp_path / "kept.xz", read_lines(folder / "rows.jsonl"))
    monkeypatch.setattr(trust, "row", None)
    there = Files(tmp_path / "trust.json", tmp_path / "rows.jsonl", tmp_path / "kept.xz")
    assert trust.run(there, tasks) == facts
    assert trust.run(there, tasks[:1])["sizes"] == facts["sizes"]  # of all that is kept, not of what was asked for


def test_a_part_is_run_again_where_the_source_is_another(files, tmp_path):
    """Rows of another version stay until their task is run, and those of other worlds stay for good."""
    folder, tasks, _ = files
    old = [{**line, "version": "old"} for line in read_lines(folder / "rows.jsonl")]
    keep(tmp_path / "kept.xz", old)
    there = Files(tmp_path / "trust.json", tmp_path / "rows.jsonl", tmp_path / "kept.xz", again=True)
    part = [task for task in tasks if task.world == "A/B test"][:3]
    assert trust.run(there, part, seconds=0.0) is None and len(kept(there.kept)) == len(tasks)
    facts = trust.run(there, part)
    assert facts["sizes"]["versions"] == {"old": len(tasks) - 3, version(): 3}
    assert trust.run(replace(there, rows=tmp_path / "none.jsonl"), part) == facts  # kept: nothing is run again
    assert not (tmp_path / "none.jsonl").exists()


def test_a_file_that_holds_no_rows_is_named(tmp_path):
    (tmp_path / "kept.xz").write_bytes(b"no rows")
    with pytest.raises(cael.InputError, match=r"kept\.xz is not a file of kept rows .*choose another --kept"):
        kept(tmp_path / "kept.xz")


def test_each_condition_shuffles_anew():
    shuffled = [Task("evaluate", "A/B test", 7000, condition) for condition in trust_counts.SHUFFLED]
    first, second = (trust.chance_of(task).permutation(1000) for task in shuffled)
    assert (first != second).mean() > 0.9


def without_time(facts):
    return {**facts, "worlds": [{**line, "time": None} for line in facts["worlds"]]}


def test_a_row_is_what_evaluate_says(files):
    folder, _, _ = files
    row = next(line for line in read_lines(folder / "rows.jsonl") if line["world"] == "A/B test")
    world, n = listed()["A/B test"]
    log = world.sample(n, row["seed"])
    evaluation = cael.evaluate(log, world.target, learn=False)
    interval = evaluation.interval
    assert row["plain"]["level"] == evaluation.verdict.level and row["learned"] is None
    assert row["plain"]["best"] == pytest.approx([evaluation.best.value, interval.low, interval.high], rel=1e-6)
    assert row["plain"]["lift"][1] == pytest.approx(evaluation.lift_interval.low, rel=1e-5)
    assert row["truth"] == pytest.approx(world.value(world.target), rel=1e-6)
    assert row["true_lift"] == pytest.approx(world.value(world.target) - world.value(world.logging), abs=1e-6)


def test_overlap_is_of_the_unsmoothed_weights():
    """One of ten arms under uniform logging has E w^2 = 10; the logging policy itself 1."""
    world, n = listed()["rare clicks, equal arms"]
    log = world.sample(n, 0)
    assert trust.overlap(log, world.target) == pytest.approx(n / 10)
    assert trust.overlap(log, world.logging) == pytest.approx(n)
    deficient, _ = listed()["deficient"]
    assert trust.overlap(deficient.sample(50, 0), deficient.target) == 0


def test_the_lift_over_a_policy_that_learned_is_over_its_mean():
    world, _ = listed()["learning policy"]
    log = world.sample(4000, 3)
    baseline = trust.baseline_of("learning policy", log)
    assert abs(log.rewards.mean() - baseline) < 4 * log.rewards.std() / math.sqrt(len(log))
    assert baseline > world.value(cael.Uniform(10)) + 0.2


def test_one_more_estimator_is_run_and_one_that_cannot_be_is_null():
    row = trust.row(Task("estimate", "A/B test", 7000, estimator="DRos"))
    world, n = listed()["A/B test"]
    assert row["estimate"][0] == pytest.approx(
        cael.DRos().estimate(world.sample(n, 7000), world.target).value, rel=1e-6
    )
    assert trust.row(Task("estimate", "A/B test", 7000, estimator="MIPS"))["estimate"] is None


def test_a_world_is_summed_up():
    rows = [made("a", 0, 1.1, 0.8, 1.4), made("a", 1, 1.3, 1.1, 1.5)]
    line = trust_summary.world_line("a", rows, {("a", 0, "CAEL"): [1.1, 0, 2], ("a", 1, "CAEL"): [1.1, 0, 2]})
    assert line["mse"]["Auto"][0] == pytest.approx((0.01 + 0.09) / 2)
    assert line["mse"]["CAEL"][0] == pytest.approx(0.01) and line["best"] == "DM"
    assert line["simple"] == "SNDR" and line["ratio"][0] == pytest.approx(0.05 / 0.04)
    assert line["Auto"]["covers"] == [1, 2] and line["SNDR"]["covers"] == [2, 2]
    assert line["Auto"]["power"] == [2, 2] and line["lost"] == line["won"] == 0
    assert line["stretch"]["Auto"] == pytest.approx(0.5 / (3.92 * math.sqrt(0.05)))
    assert line["width"] == pytest.approx(0.5 / 0.6) and line["time"] == [2.0, 4.0]


def test_an_estimator_without_a_number_on_every_log_is_left_out():
    rows = [made("a", 0, 1.1, 0.8, 1.4), made("a", 1, 1.3, 1.1, 1.5)]
    line = trust_summary.world_line("a", rows, {("a", 0, "CAEL"): [1.1, 0, 2], ("a", 1, "CAEL"): None})
    assert "CAEL" not in line["mse"]


def test_false_ok_and_refusals_are_counted():
    rows = [made("a", seed, 1.3, 1.1, 1.5) for seed in range(3)] + [made("a", 3, 1.1, 0.8, 1.4)]
    rows[3]["learned"]["level"] = "refuse"
    rows.append(made("a", 4, 1.1, 0.8, 1.4, learned={"level": "errors", "why": "", "checks": {}}))
    counts = trust_summary.verdict_counts(rows, "learned")
    assert counts == {"logs": 5, "ok": 3, "caution": 0, "refuse": 2, "missed": 3, "false_ok": 3, "covers": 2,
                      "covers_refused": 2}  # fmt: skip


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_type_one_errors_are_judged_by_chance(level):
    """100 logs of which so many warn: at their level nothing is said, at six times it the world is named."""
    rng = np.random.default_rng(0)
    rows = [made("a", seed, 1, 0, 2) for seed in range(100)]
    for row in rows:
        row["plain"] = {"checks": {"drift": ["warn" if rng.random() < level else "pass", 1.0]}}
    line = trust_summary.rejections(rows, "plain", "drift", lambda check: check[0] == "warn", 0.05)
    assert line["rejected"][1] == 100 and line["beyond"] == (["a"] if level > 0.1 else [])


def test_the_ratio_has_the_error_that_repetition_shows():
    """The delta method against the spread of 400 repetitions; the error of unpaired means would be far larger."""
    rng = np.random.default_rng(1)

    def once():
        common = rng.exponential(size=200)
        return trust_counts.ratio_of(1.1 * common + 0.05 * rng.exponential(size=200), common)

    repeated = np.array([once() for _ in range(400)])
    stated, seen = repeated[:, 1].mean(), repeated[:, 0].std()
    assert abs(stated / seen - 1) < 4 / math.sqrt(2 * 400) + 0.05
    assert seen < 0.5 * math.sqrt(2 / 200)


def test_targets_fail_where_they_should():
    """All logs right: every target of errors and intervals but the width holds; all wrong: none does."""
    good = [made(world, seed, 1.0 + 0.01 * (-1) ** seed, 0.97, 1.03) for world in ("paper", "b") for seed in range(40)]
    bad = [made(world, seed, 2.0, 1.9, 2.1) for world in ("paper", "b") for seed in range(40)]
    for rows, holds in ((good, True), (bad, False)):
        holds_of = {line["target"][:30]: line["holds"] for line in trust_summary.summary(rows)["targets"]}
        assert holds_of["1. MSE of Auto at most 1.2 times the better"[:30]] is holds
        assert holds_of["1. MSE on the paper's default problem"[:30]] is holds
        assert holds_of["2. the 95% interval of Auto covers"[:30]] is holds
        assert holds_of["4. false ok in at most 5% of the logs"[:30]] is holds
    for factor, holds in ((0.99, True), (1.01, False)):
        rows = [made("a", seed, 1.1, 1 - 0.35 * factor, 1 + 0.35 * factor) for seed in range(3)]
        (line,) = (line for line in trust_summary.summary(rows)["targets"] if "wider" in line["target"])
        assert line["holds"] is holds and f"{3 * (not holds)} of 3 logs" in line["finding"]


def test_pages_are_rendered_from_the_committed_results(tmp_path):
    (tmp_path / "trust.json").write_text((RESULTS / "trust.json").read_text())
    trust_page.page(tmp_path)
    for name in trust_page.PAGES:
        assert (tmp_path / f"trust_{name}.inc").read_bytes() == (RESULTS / f"trust_{name}.inc").read_bytes()


def test_a_page_of_nothing_says_so():
    assert set(trust_page.rendered({}).values()) == {trust_page.NONE}


def test_the_command(files, tmp_path, capsys):
    folder, _, facts = files
    sizes = [
        "--logs",
        "0",
        "--broken",
        "0",
        "--plain",
        "2",
        "--population",
        "0",
        "--joint",
        "1",
        "--joint-learned",
        "0",
    ]
    only = ["--only", "A/B test", "rare clicks, equal arms", "joint"]
    rows = ["--rows", str(folder / "rows.jsonl"), "--kept", str(tmp_path / "kept.xz")]
    trust.main(["run", "--out", str(tmp_path / "trust.json"), *rows, *only, *sizes])
    assert json.loads((tmp_path / "trust.json").read_text()) == json.loads(json.dumps(facts))
    trust.main(["page", "--out", str(tmp_path)])
    assert "`compare`" in (tmp_path / "trust_joint.inc").read_text()
    with pytest.raises(SystemExit):
        trust.main(["run", "--out", str(tmp_path / "trust.json"), "--estimators", "Nobody"])
    assert "no estimator 'Nobody'" in capsys.readouterr().err


def test_evaluations_with_learning_have_both_headlines():
    row = trust.row(Task("evaluate", "A/B test, clicks", 7000, learn=True))
    assert row["plain"]["headline"] == "SNDR" and row["learned"]["headline"] == "Auto"
    line = trust_summary.summary([row])["worlds"][0]
    assert line["logs"] == 1 and {"Auto", "SNDR", "SNIPS", "DM"} <= line["mse"].keys()
