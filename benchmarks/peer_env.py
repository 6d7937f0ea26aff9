"""Peers' own environments: each made once, from its requirements file, by the Python that runs this.

python benchmarks/peer_env.py obp econml vw
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
OBP = "obp==0.5.7"
"""Installed after its requirements, without its dependencies: its own pins end at Python 3.9."""
IMPORTS = {"obp": "obp.ope", "econml": "econml.policy", "vw": "vowpalwabbit"}


def python_of(cache: Path, peer: str = "obp") -> Path:
    """The interpreter of a peer's environment under `cache`; the environment is made if it is not there."""
    folder = cache / f"{peer}-venv"
    ready = folder / "ready"
    python = folder / "bin" / "python"
    if not ready.exists() and not _imports(python, peer):
        _create(folder, python, peer)
    if not ready.exists():
        ready.write_text(f"{peer}\n")
    return python


def _imports(python: Path, peer: str) -> bool:
    """Whether the peer can be imported there (not in an environment that was interrupted half-way)."""
    code = f"import {IMPORTS[peer]}"
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def _create(folder: Path, python: Path, peer: str) -> None:
    print(f"making {peer}'s environment in {folder} (some minutes, once)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / f"requirements-{peer}.txt")], check=True)
    if peer == "obp":
        subprocess.run([*pip, "--no-deps", "--ignore-requires-python", OBP], check=True)
    if not _imports(python, peer):
        raise SystemExit(f"{peer} was installed in {folder} but cannot be imported there.")


if __name__ == "__main__":
    for name in sys.argv[1:] or ["obp"]:
        print(python_of(HERE / ".cache", name))
