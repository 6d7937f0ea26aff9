"""Write requirements-runtime.txt: what a user of cael installs, at the versions of constraints.txt, with the hashes of
all files of these versions on the index that pip uses, so of every platform that they were built for.

    .venv/bin/python .ci/hashes.py [--check]

The packages are found in the metadata of the environment that runs this, with the markers of three systems. --check:
only that the versions are those of constraints.txt, without asking the index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("", "report")
SYSTEMS = ({"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
           {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
           {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"})  # fmt: skip
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FILE = re.compile(r"""<a [^>]*href=["'][^"'#]*#sha256=([0-9a-f]{64})["'][^>]*>\s*([^<\s]+)\s*</a>""")
HEAD = """# What cael[report] takes, with hashes. Written by .ci/hashes.py (make hashes), as constraints.txt has them.
# pip install --require-hashes -r requirements-runtime.txt && pip install --no-deps cael
"""


def pins() -> dict[str, str]:
    """Versions by name, of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def needed() -> list[str]:
    """Names of all packages that cael needs, directly or not, on any system."""
    names: list[str] = []
    waiting = [("cael", EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            other = canonicalize_name(requirement.name)
            if other not in names and other != "cael" and _wanted(requirement, extras):
                names.append(other)
                waiting.append((other, ("", *requirement.extras)))
    return sorted(names)


def _wanted(requirement: Requirement, extras: tuple[str, ...]) -> bool:
    environments = [{**system, "python_version": python, "extra": extra}
                    for system in SYSTEMS for python in PYTHONS for extra in extras]  # fmt: skip
    return requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments)


def index() -> str:
    """The address of the index that pip is told to use."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if told:
        return told
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def hashes(name: str, version: str, address: str) -> list[str]:
    """sha256 of all files of a version."""
    request = urllib.request.Request(f"{address.rstrip('/')}/{name}/")
    request.add_header("Accept", "text/html")
    with urllib.request.urlopen(request, timeout=60) as answer:
        links = FILE.findall(answer.read().decode())
    stem = re.compile(rf"{name.replace('-', '[-_.]+')}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)", re.IGNORECASE)
    return sorted({sha256 for sha256, file in links if stem.fullmatch(file)})


def written() -> dict[str, str]:
    """Versions by name, of requirements-runtime.txt."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) ", (ROOT / "requirements-runtime.txt").read_text(), re.MULTILINE))


def main() -> None:
    versions, names = pins(), needed()
    if lacking := [name for name in names if name not in versions]:
        sys.exit(f"constraints.txt has no version of {', '.join(lacking)}.")
    wanted = {name: versions[name] for name in names}
    if "--check" in sys.argv:
        if wanted != written():
            sys.exit("requirements-runtime.txt does not have the versions of constraints.txt: run .ci/hashes.py.")
        return
    address, lines = index(), [HEAD]
    for name, version in wanted.items():
        known = hashes(name, version, address)
        if not known:
            sys.exit(f"the index has no file of {name} {version}.")
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in known)]) + "\n")
    (ROOT / "requirements-runtime.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
