"""cael and obp on the same data, each in its own environment: time, peak memory, error, and verdicts.

    python benchmarks/against_obp.py [--limit SECONDS] [--only TASK ...] [--sizes NxK ...] [--keep-obp]

A full run takes about half an hour, nearly all of it obp's. It measures and never fails on a number. It writes
RESULTS.md next to this file; every run, whole or in part, writes .cache/results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import bench_data
import peer_env
from bench_data import Size
from bench_report import HEADERS, TITLES, Pair, markdown, rows, verdicts

HERE = Path(__file__).resolve().parent
SIZES = (Size(10_000, 500), Size(1_000_000, 10), Size(100_000, 240))
ONLY_CAEL = ("evaluate",)
THREADS = "2"
COMMAND = "make bench"


def environment() -> dict[str, str]:
    """The same number of threads for both sides."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, THREADS)}


def run(python: Path, side: str, task: str, folder: Path, limit: float) -> dict[str, Any]:
    """What one side measured for one task; with `unfinished` and lower bounds where it ran past the limit."""
    command = [str(python), str(HERE / f"bench_{side}.py"), task, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            said = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            peak = peak_of(process.pid)
            process.kill()
            resident = json.loads(process.communicate()[0].splitlines()[0])["resident"]
            above = max(0, peak - resident)
            return {"unfinished": True, "seconds": limit, "again": limit, "peak": above, "total_peak": above}
    if process.returncode:
        raise SystemExit(f"{side} crashed on {task} in {folder.name} (exit status {process.returncode})")
    return json.loads(said.splitlines()[-1])


def peak_of(pid: int) -> int:
    """Peak resident bytes of a running process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def machine() -> str:
    """The machine in words."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {round(pages / 2**30)} GiB"


def size(text: str) -> Size:
    n, k = text.lower().split("x")
    return Size(int(float(n)), int(float(k)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one task of one side may take")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES), metavar="TASK")
    parser.add_argument("--sizes", nargs="+", type=size, default=list(SIZES), metavar="NxK", help="such as 1e4x500")
    parser.add_argument("--keep-obp", action="store_true", help="take obp's numbers from the last results.json")
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="obp's environment, data, results")
    return parser.parse_args()


def measure(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Everything that was asked for, by "size task", kept in results.json after each task."""
    file = given.cache / "results.json"
    before = json.loads(file.read_text()) if given.keep_obp and file.exists() else {}
    pythons = {"cael": Path(sys.executable), "obp": peer_env.python_of(given.cache)}
    found: dict[str, dict[str, Any]] = {}
    for each in given.sizes:
        folder = bench_data.folder_of(each, given.cache)
        truth = json.loads((folder / "truth.json").read_text())["value"]
        for task in given.only:
            key = f"{each.key} {task}"
            found[key] = {"size": str(each), "task": task, "truth": truth, "obp": None}
            for side in ("cael",) if task in ONLY_CAEL else ("cael", "obp"):
                kept = before.get(key, {}).get(side) if side == "obp" else None
                found[key][side] = kept or run(pythons[side], side, task, folder, given.limit)
                took = found[key][side]["seconds"]
                print(f"{each}  {TITLES[task]:34} {side:5} {took:9.4f} s", file=sys.stderr, flush=True)
            file.write_text(json.dumps({**before, **found}, indent=1))
    return found


def show(pairs: list[Pair]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    for each in dict.fromkeys(pair.size for pair in pairs):
        table = Table(title=each, title_justify="left")
        for number, name in enumerate(HEADERS):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for row in rows([pair for pair in pairs if pair.size == each]):
            table.add_row(*row)
        console.print(table)
    for verdict in verdicts(pairs):
        console.print(str(verdict), highlight=False, markup=False)


def main() -> None:
    given = arguments()
    given.cache.mkdir(parents=True, exist_ok=True)
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"the machine is busy (load {load:.1f}): the times are not to be trusted", file=sys.stderr)
    pairs = [Pair(**each) for each in measure(given).values()]
    show(pairs)
    complete = given.sizes == list(SIZES) and given.only == list(TITLES) and not given.keep_obp
    if complete:
        sides = {"cael": [pair.cael for pair in pairs], "obp": [pair.obp or {} for pair in pairs]}
        versions = {name: next(m["versions"] for m in said if "versions" in m) for name, said in sides.items()}
        (HERE / "RESULTS.md").write_text(markdown(pairs, COMMAND, machine(), versions, given.limit))


if __name__ == "__main__":
    main()
