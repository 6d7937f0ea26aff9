"""obp's own environment: made once, from `requirements-obp.txt`, by the Python that runs this."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
OBP = "obp==0.5.7"


def python_of(cache: Path) -> Path:
    """The interpreter of obp's environment under `cache`; the environment is made if it is not there."""
    folder = cache / "obp-venv"
    ready = folder / "ready"
    python = folder / "bin" / "python"
    if not ready.exists() and not _imports(python):
        _create(folder, python)
    if not ready.exists():
        ready.write_text(f"{OBP}\n")
    return python


def _imports(python: Path) -> bool:
    """Whether obp can be imported there (an environment that was interrupted half-way cannot)."""
    return python.exists() and subprocess.run([python, "-c", "import obp.ope"], capture_output=True).returncode == 0


def _create(folder: Path, python: Path) -> None:
    print(f"making obp's environment in {folder} (some minutes, once)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / "requirements-obp.txt")], check=True)
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", OBP], check=True)
    if not _imports(python):
        raise SystemExit(f"{OBP} was installed in {folder} but cannot be imported there.")


if __name__ == "__main__":
    print(python_of(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / ".cache"))
