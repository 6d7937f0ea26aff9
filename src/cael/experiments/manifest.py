"""manifest.json: with which versions, settings and code the rows beside it were made."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cael.common.version import __version__
from cael.common.whole import write_whole
from cael.experiments import registry
from cael.experiments.ledger import read_json
from cael.experiments.trial import FORMAT

if TYPE_CHECKING:
    from cael.experiments.run import Where
    from cael.experiments.spec import Spec

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "joblib")


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Of Python, cael and what does the arithmetic."""
    return {
        "python": platform.python_version(), "cael": __version__, **{name: version_of(name) for name in PACKAGES},
    }  # fmt: skip


def git_hash() -> str | None:
    """The commit of the source, with a mark if it was changed since; None where the source is no repository."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    return f"{commit}, changed" if git("status", "--porcelain", "--untracked-files=no", ".") else commit


def describe_device(device: str) -> str:
    """The device in words."""
    if device == "cpu":
        return f"cpu ({platform.machine()})"
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else device


def write_manifest(out: Path, spec: Spec, where: Where, *, finished: bool) -> None:
    """Settings, versions and the sessions that made the rows; a resumed run adds a session."""
    path = out / "manifest.json"
    sessions: list[dict[str, Any]] = read_json(path, {}).get("sessions", [])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if finished:
        sessions[-1]["finished"] = now
    else:
        sessions.append(
            {
                "started": now,
                "finished": None,
                "versions": versions(),
                "git": git_hash(),
                "jobs": where.jobs,
                "dask": where.dask is not None,
                "device": describe_device(where.device),
                "system": sys.platform,
            }
        )
    manifest = {
        "experiment": spec.name,
        "format": FORMAT,
        "runs": spec.runs,
        "runs_of": spec.often,
        "seed": spec.seed,
        "quick": spec.quick,
        "cells": [{"at": cell.at, "world": cell.world, "n": cell.n} for cell in spec.cells],
        "estimators": {
            name: registry.described(registry.make(**settings, quick=spec.quick))
            for name, settings in spec.estimators.items()
        },
        "sessions": sessions,
    }
    write_whole(path, json.dumps(manifest, indent=1) + "\n")
