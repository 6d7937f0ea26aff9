"""Tables of readings: rows keep the order in which they were asked for, and are made once."""

import json

import pytest

import cael
from cael.experiments import readings
from cael.experiments.readings import Job, Runner

JOBS = [Job("mean", cael.LoggedMean(), 3), Job("ips", cael.IPS(), 3), Job("mean of others", cael.LoggedMean(), 3, 50)]


@pytest.fixture(autouse=True)
def short_logs(monkeypatch):
    monkeypatch.setattr(readings, "ROWS", 50)


def test_rows_come_in_the_order_of_the_jobs_and_are_kept(tmp_path):
    rows = Runner(tmp_path / "rows.json")(JOBS)
    assert [row.name for row in rows] == ["mean", "ips", "mean of others"]
    assert [row["name"] for row in json.loads((tmp_path / "rows.json").read_text())] == [
        "mean",
        "ips",
        "mean of others",
    ]
    assert rows[0].mse != rows[2].mse


def test_a_later_run_makes_only_what_is_not_there(tmp_path, monkeypatch):
    first = Runner(tmp_path / "rows.json")(JOBS[1:])
    made = []
    monkeypatch.setattr(readings, "run", lambda job, real=readings.run: made.append(job.name) or real(job))
    again = Runner(tmp_path / "rows.json")(JOBS)
    assert made == ["mean"]
    assert again[1:] == first
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 3


def test_rewards_that_are_shifted_or_scaled_are_restored():
    """The mean of the log does not care for the scale on which it was taken."""
    values = [readings.run(Job("mean", cael.LoggedMean(), 4, change=each)).mse for each in ("raw", "centred", "tenth")]
    assert values == pytest.approx([values[0]] * 3)


def test_the_search_runs_the_best_again_beside_a_twin_with_a_constant_posterior():
    asked = []

    def make(jobs):
        asked.append(jobs)
        return [readings.Summary(job.name, job.settings, job.trials, *[0.0] * 4, mse, *[0.0] * 4)
                for mse, job in enumerate(jobs)]  # fmt: skip

    readings.search(30, "cpu", 10, make)
    first, second, last = asked
    assert [len(each) for each in asked] == [10, 3, 8]
    assert [job.settings for job in second] == [job.settings for job in first[:3]]
    assert not {job.first for job in first} & {job.first for job in last}
    for one, twin in zip(last[0:6:2], last[1:6:2], strict=True):
        assert twin.settings == {**one.settings, "posterior_gradient": False}
        assert one.estimator.objective.posterior_gradient and not twin.estimator.objective.posterior_gradient
