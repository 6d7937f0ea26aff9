"""Files that are written whole or not at all, and what must go when the process is ended."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cael.errors import InputError

LEFTOVERS: set[Path] = set()
"""Files and folders of this process that nobody wants when it has ended."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` at the end, or goes. It is new and has a name that nobody can
    know beforehand, and a link in the place of `path` is replaced, not followed."""
    part = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(part, flags, 0o666)
    LEFTOVERS.add(part)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        LEFTOVERS.discard(part)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write the whole file or leave it as it was; an error names it."""
    try:
        with whole_file(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} could not be written: {error.strerror or error}.")


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Refuse where another process is in this block with the same folder. The lock is on the folder itself, leaves no
    file, and goes with the process however it ends. Windows, which has no such locks, does without."""
    if os.name != "posix":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"another process is writing to {folder}. Wait for it, or choose another --out.") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):  # a file system that knows no locks
            raise


def remove_leftovers() -> None:
    """Take away what this process would leave behind."""
    for path in tuple(LEFTOVERS):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def clean_when_ended() -> None:
    """Take leftovers away when the process is asked to end, which then ends as it would have. Only for a command."""

    def ends(number: int, _: Any) -> None:
        remove_leftovers()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        with contextlib.suppress(ValueError):  # not the main thread
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, ends)
