"""Lines of source by room at a commit and now: python -m tests.house_lines COMMIT

A module of the commit counts for the room that git says it moved to, or for "no successor" where git finds none.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/cael"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def room(path: str) -> str:
    return path.split("/")[2]


def now() -> Counter[str]:
    """Lines of each room as they stand."""
    rooms: Counter[str] = Counter()
    for path in (ROOT / PACKAGE).rglob("*.py"):
        rooms[room(path.relative_to(ROOT).as_posix())] += len(path.read_text("utf-8").splitlines())
    return rooms


def moved(commit: str) -> dict[str, str]:
    """Old path -> new path of the modules that git knows again; "" for those that it does not."""
    paths = {}
    for line in git("diff", "--find-renames=30%", "--name-status", commit, "--", PACKAGE).splitlines():
        status, old, *new = line.split("\t")
        if status[0] in "RD":
            paths[old] = new[0] if new else ""
    return paths


def then(commit: str) -> Counter[str]:
    """Lines at a commit, for the room that each module is in now."""
    rooms: Counter[str] = Counter()
    successors = moved(commit)
    for name in git("ls-tree", "-r", "--name-only", commit, PACKAGE).split():
        if name.endswith(".py"):
            successor = successors.get(name, name)
            rooms[room(successor) if successor else "no successor"] += len(git("show", f"{commit}:{name}").splitlines())
    return rooms


def main() -> None:
    before, after = then(sys.argv[1]), now()
    for name in sorted({*before, *after}):
        print(f"| {name} | {before[name]:,} | {after[name]:,} |")
    print(f"| all | {before.total():,} | {after.total():,} |")


if __name__ == "__main__":
    main()
