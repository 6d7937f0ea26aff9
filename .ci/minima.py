"""Print the least version of each dependency that pyproject.toml declares, as pins for pip: those of `make oldest`.

torch and the packages that build the documentation and check the code are left out: the first is large, and the others
are no part of what a user installs. So is vowpalwabbit, an oracle of two tests, whose old versions have no wheels.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("report", "plots", "dask", "test")
DECLARED = re.compile(r"([A-Za-z0-9._-]+)>=([0-9][0-9.]*)(,.*)?")


def minima(pyproject: Path) -> list[str]:
    """name==version of every dependency."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted, pins = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])], {}
    for each in wanted:
        if each.startswith("cael["):
            wanted += [inner for extra in each[5:-1].split(",") for inner in extras[extra.strip()]]
            continue
        if each.startswith("vowpalwabbit"):
            continue
        match = DECLARED.fullmatch(each)
        if match is None or pins.setdefault(match[1], match[2]) != match[2]:
            raise SystemExit(f"{pyproject}: {each!r} must declare one least version, as in 'numpy>=1.26,<3'.")
    return [f"{name}=={version}" for name, version in pins.items()]


if __name__ == "__main__":
    print("\n".join(minima(Path(__file__).parent.parent / "pyproject.toml")))
