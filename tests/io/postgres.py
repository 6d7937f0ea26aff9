"""A real PostgreSQL for a test: a cluster of its own in a temporary folder, on a private socket, gone afterwards.

It refuses to run as root, so root starts it as the user of Debian's package.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEEDED = "CAEL_NEED_POSTGRES"
USER = "postgres"


def binaries() -> Path | None:
    """The folder with initdb and pg_ctl: that of the newest version of Debian's package, or on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    folders = [path for path in folders if (path / "initdb").exists()]
    if folders:
        return folders[-1]
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


@contextmanager
def server() -> Iterator[str]:
    """The URL of a new, empty database; skipped where there is no PostgreSQL and nobody needs it."""
    programs = binaries()
    if programs is None:
        if os.environ.get(NEEDED):
            pytest.fail(f"{NEEDED} is set and there is no PostgreSQL: apt-get install postgresql")
        pytest.skip("there is no PostgreSQL here")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    password = secrets.token_hex(8)

    def call(*words: str) -> None:
        with (folder / "said").open("w") as said:  # not a pipe: the server would keep it open
            done = subprocess.run(words, user=user, group=user, cwd=folder, check=False, stdout=said, stderr=said)
        assert done.returncode == 0, (folder / "said").read_text()

    try:
        data, secret = str(folder / "data"), folder / "password"
        secret.write_text(password)
        secret.chmod(0o644)  # it is in a folder of mode 700
        call(
            str(programs / "initdb"), "-D", data, "-U", "tester", "-A", "scram-sha-256", f"--pwfile={secret}", "-E",
            "UTF8",
            "--no-sync",
        )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        call(str(programs / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester:{password}@/postgres?host={folder}"
        finally:
            call(str(programs / "pg_ctl"), "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
