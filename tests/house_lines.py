"""Lines of source by room at a commit and now: python -m tests.house_lines COMMIT"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def now() -> Counter[str]:
    """Lines of each room as they stand."""
    rooms: Counter[str] = Counter()
    for path in (ROOT / "src" / "cael").rglob("*.py"):
        rooms[path.relative_to(ROOT / "src" / "cael").parts[0]] += len(path.read_text("utf-8").splitlines())
    return rooms


def then(commit: str) -> Counter[str]:
    """Lines of each room at a commit."""
    listed = ["git", "ls-tree", "-r", "--name-only", commit, "src/cael"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    rooms: Counter[str] = Counter()
    for name in names:
        if name.endswith(".py"):
            shown = subprocess.run(["git", "show", f"{commit}:{name}"], capture_output=True, check=True, cwd=ROOT)
            rooms[name.split("/")[2]] += len(shown.stdout.decode().splitlines())
    return rooms


def main() -> None:
    before, after = then(sys.argv[1]), now()
    for room in sorted({*before, *after}):
        print(f"{room:20} {before[room]:7,} {after[room]:7,}")
    print(f"{'all':20} {before.total():7,} {after.total():7,}")


if __name__ == "__main__":
    main()
