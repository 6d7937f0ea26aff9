"""Missing numbers in contexts: a median and a mark, the same in memory and in a stream; and rows that were left out."""

import numpy as np
import pandas as pd
import pytest

import cael
from cael.io.missing import LOOK

N = 6000
RNG = np.random.default_rng(7)
VISITS = pd.DataFrame({
    "x_age": np.where(RNG.random(N) < 0.17, np.nan, RNG.normal(40, 10, N)),
    "x_late": np.where((RNG.random(N) < 0.3) & (np.arange(N) >= LOOK), np.nan, RNG.normal(size=N)),
    "x_full": RNG.normal(size=N),
    "action": RNG.integers(0, 3, N),
    "propensity": 1 / 3,
})  # fmt: skip
VISITS["reward"] = np.where(VISITS.x_age.isna(), 3.0, 0.0) + 0.1 * VISITS.x_full + VISITS.action


def test_the_median_of_the_first_rows_and_a_mark_where_some_of_them_are_missing():
    table = cael.io.open_log(VISITS)
    head = VISITS.iloc[:LOOK]
    age, late = VISITS.x_age.fillna(head.x_age.median()), VISITS.x_late.fillna(head.x_late.median())
    by_hand = np.column_stack([age, VISITS.x_age.isna(), late, VISITS.x_full])
    assert np.array_equal(table.log.contexts, by_hand)
    first, second = (note for note in table.notes if "median" in note)
    count = int(head.x_age.isna().sum())
    assert f"'x_age' is missing in {count:,} of the first {LOOK:,} rows" in first and "further context" in first
    assert f"'x_late' is missing in {VISITS.x_late.isna().sum():,} rows" in second and "further" not in second
    assert table.dropped == ()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_memory_and_stream_have_the_same_numbers(ending, tmp_path):
    path = tmp_path / f"log.{ending}"
    (VISITS.to_csv(path, index=False) if ending == "csv" else VISITS.to_parquet(path))
    scanned = cael.scan(path)
    assert any("'x_age' is missing" in note for note in scanned.notes)
    one, two = (cael.evaluate(log, [0.2, 0.3, 0.5], learn=False) for log in (cael.read(path), scanned))
    assert [float(each) for each in one] == pytest.approx([float(each) for each in two], rel=1e-10)
    imputed = VISITS.fillna(VISITS.iloc[:LOOK].median()).assign(x_mark=VISITS.x_age.isna().astype(float))
    plain = cael.evaluate(cael.read(imputed), [0.2, 0.3, 0.5], learn=False)
    assert float(one["DR"]) == pytest.approx(float(plain["DR"]), rel=1e-9)
    without = cael.read(imputed.drop(columns="x_mark"))
    assert one["DR"].stderr < 0.95 * cael.evaluate(without, [0.2, 0.3, 0.5], learn=False)["DR"].stderr  # the mark helps


def test_infinite_and_hopeless_columns_are_still_errors():
    with pytest.raises(cael.LogError, match="column 'x_age' is infinite"):
        cael.read(VISITS.assign(x_age=VISITS.x_age.where(np.arange(N) != 9, np.inf)))
    with pytest.raises(cael.LogError, match="column 'x_age' is missing"):
        cael.read(VISITS.assign(x_age=np.nan))
    with pytest.raises(cael.LogError, match="column 'reward' is missing"):
        cael.read(VISITS.assign(reward=VISITS.reward.where(np.arange(N) != 9)))


def test_missing_categories_are_a_category():
    frame = VISITS.assign(x_age=RNG.choice(["a", "b", None], N))
    table = cael.io.open_log(frame)
    assert table.log.contexts.shape[1] == 3 + 2
    assert any("a category of their own" in note for note in table.notes)


@pytest.mark.filterwarnings("ignore:.*were left out")
@pytest.mark.parametrize(("share", "status"), [(0.0, None), (0.005, "pass"), (0.17, "warn")])
def test_rows_that_were_left_out_are_in_the_verdict(share, status, tmp_path):
    rows = np.arange(N) < int(share * N)
    frame = VISITS.assign(propensity=np.where(rows, 0.0, 1 / 3))
    frame.to_parquet(tmp_path / "log.parquet")
    verdicts = [
        cael.evaluate(log, [0.2, 0.3, 0.5], learn=False).verdict
        for log in (
            cael.io.open_log(frame, drop_invalid=True).log, cael.scan(tmp_path / "log.parquet", drop_invalid=True)
        )
    ]  # fmt: skip
    for verdict in verdicts:
        check = next((check for check in verdict.checks if check.name == "dropped"), None)
        assert (None if check is None else check.status) == status
        assert status != "warn" or (verdict.level != "ok" and "1,020 of 6,000 rows (17.0%)" in check.sentence)


def test_percent_is_named(tmp_path):
    percent = VISITS.assign(propensity=100 / 3)
    percent.to_csv(tmp_path / "log.csv", index=False)
    for read in (lambda: cael.read(percent), lambda: cael.read(percent, drop_invalid=True)):
        with pytest.raises(cael.InputError, match=r"in percent.*Divide the column by 100"):
            read()
    with pytest.raises(cael.InputError, match="in percent"):
        cael.evaluate(cael.scan(tmp_path / "log.csv"), [0.2, 0.3, 0.5], learn=False)
    with pytest.raises(cael.LogError, match="is above 1"):  # one that is wrong among others is not percent
        cael.read(VISITS.assign(propensity=np.where(np.arange(N) == 3, 33.0, 0.3)))


def test_a_column_that_is_the_action_is_no_segment_too():
    frame = VISITS.rename(columns={"action": "segment"})
    assert cael.io.open_log(frame, {"action": "segment"}).segments == ()
    assert [name for name, _ in cael.io.open_log(frame.assign(action=frame.segment)).segments] == ["segment"]
