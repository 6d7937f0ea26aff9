"""The Open Bandit Dataset: parsing on files made here, and what is known of the real one."""

import numpy as np
import pytest

import cael
from cael.datasets import FetchError, open_bandit
from cael.datasets.obd import (
    dummies,
    flattened,
    flattened_as_published,
    frequencies,
    read_columns,
    thompson,
    thompson_prior,
)
from cael.worlds import KnownRewardWorld, OpenBanditWorld


def write(folder, policy, rows):
    here = folder / policy / "all"
    here.mkdir(parents=True)
    head = (
        ",timestamp,item_id,position,click,propensity_score,"
        + ",".join(f"user_feature_{i}" for i in range(4))
        + ",more"
    )
    (here / "all.csv").write_text("\n".join([head, *rows]) + "\n")
    items = [f"{i},{i},0.5,{'ab'[i % 2]},c,d{i}" for i in (2, 0, 1)]
    (here / "item_context.csv").write_text(
        "\n".join([",item_id," + ",".join(f"item_feature_{i}" for i in range(4)), *items])
    )


@pytest.fixture
def folder(tmp_path):
    write(
        tmp_path,
        "random",
        [f"{i},t,{i % 3},{1 + i % 2},{int(i == 4)},0.3,u{i % 2},v,w{i % 3},x,1" for i in range(12)],
    )
    write(tmp_path, "bts", [f"{i},t,2,3,{int(i < 2)},0.9,u0,v,w1,x,1" for i in range(5)])
    return tmp_path


def test_a_folder_of_the_full_data_set_is_read(folder):
    log = open_bandit("random", folder=folder)
    assert len(log) == 12 and log.n_items == 3 and log.clicks.sum() == 1
    np.testing.assert_array_equal(log.actions, [(i % 2) * 3 + i % 3 for i in range(12)])
    np.testing.assert_array_equal(log.item_features[:, 0], [0, 1, 0])  # a, b, a in the order of the item numbers
    assert dummies(log.users).shape == (12, 1 + 0 + 2 + 0)
    world = OpenBanditWorld(folder=str(folder))
    assert world.n_actions == 9 and world.value(world.target) == pytest.approx(0.4)
    assert world.target.table.sum() == pytest.approx(1) and world.target.table.argmax() == 2 * 3 + 2
    assert world.truth_error == pytest.approx(np.std([1, 1, 0, 0, 0], ddof=1) / np.sqrt(5))
    with pytest.raises(cael.InputError, match="its own target policy only"):
        world.value(cael.Uniform(9))


def test_files_that_are_wrong_are_told(folder):
    with pytest.raises(cael.InputError, match=r"no .*men\.csv"):
        open_bandit("random", "men", folder=folder)
    with pytest.raises(cael.InputError, match=r"all\.csv: Column 'price'.* does not exist"):
        read_columns(folder / "random/all/all.csv", ("price",), ())
    with pytest.raises(cael.InputError, match=r"CSV column #6: .*invalid value 'u0'"):
        read_columns(folder / "random/all/all.csv", ("user_feature_0",), ())
    with (folder / "random/all/all.csv").open("a") as file:
        file.write("13,t,1\n")
    with pytest.raises(cael.InputError, match=r"Row #14: Expected 11 columns, got 3"):
        open_bandit("random", folder=folder)
    with pytest.raises(cael.InputError, match="policy must be one of"):
        open_bandit("best", folder=folder)


def test_long_files_are_read_in_blocks_to_the_same_columns(folder, monkeypatch):
    """Words get their rank among the sorted words, whatever block first has them."""
    whole = open_bandit("random", folder=folder)
    monkeypatch.setattr("cael.datasets.obd.BLOCK", 160)
    parts = open_bandit("random", folder=folder)
    for name in ("items", "positions", "clicks", "propensities", "users"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    np.testing.assert_array_equal(whole.users[:, 2], [i % 3 for i in range(12)])


def test_flattening_is_in_the_order_of_the_actions():
    table = np.array([[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]])  # 2 items, 3 positions
    np.testing.assert_allclose(flattened(table) * 3, [0.1, 0.9, 0.2, 0.8, 0.3, 0.7])
    np.testing.assert_allclose(flattened_as_published(table) * 3, [0.1, 0.2, 0.3, 0.9, 0.8, 0.7])


def test_thompson_sampling_ranks_by_draws():
    """Three sure items take the positions in order; two equal ones share them."""
    sure = thompson(np.array([900.0, 500.0, 100.0, 1.0]), np.array([100.0, 500.0, 900.0, 999.0]), draws=2000)
    np.testing.assert_allclose(sure, np.eye(4)[:, :3], atol=0.01)
    fair = thompson(np.full(4, 2.0), np.full(4, 2.0), draws=20_500)
    np.testing.assert_allclose(fair, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 20_500))
    np.testing.assert_allclose(fair.sum(axis=0), 1)


def test_without_a_network_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("CAEL_CACHE", str(tmp_path))
    with pytest.raises(FetchError, match=r"could not fetch obp==0\.4\.1.*unzip the wheel"):
        open_bandit("random")


@pytest.fixture(scope="module")
def real():
    try:
        return open_bandit("random"), open_bandit("bts")
    except FetchError as error:
        pytest.skip(f"needs the package index: {error}")


def test_the_target_lies_on_the_actions_that_it_is_meant_for(real):
    """The replayed policy agrees with the propensities of its first 100 rows; in the published layout it does not."""
    _, bts = real
    table = thompson(*thompson_prior())
    first = slice(0, 100)

    def agreement(flat):
        return np.corrcoef(3 * flat[bts.actions[first]], bts.propensities[first])[0, 1]

    assert agreement(flattened(table)) > 0.9
    assert agreement(flattened_as_published(table)) < 0.2
    masses = flattened_as_published(table).reshape(3, 80).sum(axis=1) * 3
    np.testing.assert_allclose(masses, [0.43, 0.89, 1.68], atol=0.02)


def test_the_small_version_is_what_the_notes_say(real):
    random, bts = real
    assert (len(random), len(bts), random.clicks.sum(), bts.clicks.sum()) == (10_000, 10_000, 38, 42)
    np.testing.assert_allclose(random.propensities, 1 / 80)
    world, published = OpenBanditWorld(), OpenBanditWorld(as_published=True)
    assert world.sample(50, 0).contexts.shape == (50, 20) and world.n_actions == 240
    assert 0.14 < world.truth_error / world.value(world.target) < 0.16
    weights = 240 * np.asarray(published.target.table)[random.actions]
    assert (weights * random.clicks).mean() == pytest.approx(0.0037, abs=5e-5)
    weights = 240 * flattened(thompson(*thompson_prior()))[random.actions]
    assert (weights * random.clicks).mean() == pytest.approx(0.00455, abs=5e-5)
    assert np.abs(frequencies(bts).sum(axis=0) - 1).max() < 1e-12


def test_the_companion_has_a_truth_that_a_long_log_confirms(real):
    world = KnownRewardWorld(click_rate=0.05)
    assert world.value(world.logging) == pytest.approx(0.05)
    log = world.sample(100_000, seed=1)
    for estimator, value in ((cael.LoggedMean(), world.value(world.logging)), (cael.IPS(), world.value(world.target))):
        found = estimator.estimate(log, world.target)
        assert abs(found.value - value) < 4 * found.stderr
    with pytest.raises(cael.InputError):
        KnownRewardWorld(click_rate=0.0)
