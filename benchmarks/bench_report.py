"""What the measurements say: rows of a table, and a verdict on each sentence that is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

MIB = 2**20
POINTS = ("ips", "snips", "dm", "dr", "mips")
TITLES = {
    "ips": "IPS",
    "snips": "SNIPS",
    "dm": "DM",
    "dr": "DR",
    "mips": "MIPS",
    "bootstrap": "bootstrap interval alone",
    "ips_bootstrap": "IPS and bootstrap interval",
    "panel": "panel, from the arrays",
    "evaluate": "evaluate(), trains its own model",
}
HEADERS = (
    "task",
    "cael s",
    "obp s",
    "cael/obp",
    "cael MiB",
    "obp MiB",
    "cael/obp",
    "cael error",
    "obp error",
    "cael/obp",
)

Measured = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """One task at one size, by both libraries; obp is None where it has nothing to compare with."""

    size: str
    task: str
    truth: float
    cael: Measured
    obp: Measured | None

    @property
    def bound(self) -> str:
        """'<' where obp did not finish, so that every ratio is only known to lie below; '>' where cael did not."""
        if self.cael.get("unfinished"):
            return "?" if (self.obp or {}).get("unfinished") else ">"
        return "<" if (self.obp or {}).get("unfinished") else ""

    def ratio(self, of: str) -> float | None:
        """cael / obp of a measured number; None where there is nothing to divide by."""
        return self.cael[of] / self.obp[of] if self.obp and self.obp.get(of) else None

    def errors(self) -> tuple[float | None, float | None]:
        """Root mean square distance from the true value, over the estimates that both sides made."""
        mine, theirs = self.cael.get("values", {}), (self.obp or {}).get("values", {})
        shared = [name for name in mine if name in theirs] or [name for name in mine if name != "LoggedMean"]
        return _rms(mine, shared, self.truth), _rms(theirs, shared, self.truth)


def _rms(values: dict[str, float], names: Iterable[str], truth: float) -> float | None:
    squares = [(values[name] - truth) ** 2 for name in names if name in values]
    return (sum(squares) / len(squares)) ** 0.5 if squares else None


def _shown(value: float | None, spec: str, bound: str = "") -> str:
    return "" if value is None else bound + format(value, spec)


def rows(pairs: list[Pair]) -> list[tuple[str, ...]]:
    """The table of one size; the cost of building cael's log comes first."""
    first = next(pair.cael for pair in pairs if pair.task in POINTS)
    built = (
        "log: construct and check",
        f"{first['prepare_seconds']:.3g}",
        "",
        "",
        f"{first['prepare_peak'] / MIB:.1f}",
        *[""] * 5,
    )
    return [built, *(_row(pair) for pair in pairs)]


def _row(pair: Pair) -> tuple[str, ...]:
    obp = pair.obp or {}
    high, low = ("> " if side.get("unfinished") else "" for side in (pair.cael, obp))
    mine, theirs = pair.errors()
    return (
        TITLES[pair.task],
        f"{high}{pair.cael['seconds']:.3g}",
        _shown(obp.get("seconds"), ".3g", low),
        _shown(pair.ratio("seconds"), ".3g", pair.bound),
        f"{pair.cael['peak'] / MIB:.1f}",
        _shown(obp["peak"] / MIB if obp else None, ".1f", low),
        _shown(pair.ratio("peak"), ".2g", pair.bound),
        _shown(mine, ".2g"),
        _shown(theirs, ".2g"),
        _shown(mine / theirs if mine is not None and theirs else None, ".3g"),
    )


@dataclass(frozen=True)
class Verdict:
    """A claim, whether the measurements bear it out, and the numbers by size."""

    claim: str
    holds: bool
    numbers: str

    def __str__(self) -> str:
        return f"{'HOLDS' if self.holds else 'DOES NOT HOLD'}: {self.claim} [{self.numbers}]"


def verdicts(pairs: list[Pair]) -> list[Verdict]:
    """The claims, indented under each: the same question read in another way."""

    def point(p: Pair) -> bool:
        return p.task in POINTS

    def just(task: str) -> Callable[[Pair], bool]:
        return lambda p: p.task == task

    return [
        _all(pairs, "the whole panel is faster than obp's at every size", just("panel"), _time, 1),
        _all(pairs, "no point estimate takes more than twice obp's time (log built, first call)", point, _time, 2),
        _all(pairs, "  and on a later call with the same log", point, _time_again, 2),
        _all(pairs, "  and with the building of the log counted in every one", point, _time_with_build, 2),
        _faster(pairs, "the bootstrap interval is at least 20 times faster", "bootstrap", 20),
        _faster(pairs, "  and with the estimate counted on both sides", "ips_bootstrap", 20),
        _all(pairs, "the panel's peak memory above the data is under a quarter of obp's", just("panel"), _peak, 0.25),
        _all(pairs, "  and that of every other task", lambda p: p.task not in ("panel", "evaluate"), _peak, 0.25),
    ]


def _time(pair: Pair) -> float | None:
    return pair.ratio("seconds")


def _time_again(pair: Pair) -> float | None:
    return pair.ratio("again")


def _peak(pair: Pair) -> float | None:
    return pair.ratio("peak")


def _time_with_build(pair: Pair) -> float | None:
    if pair.obp is None:
        return None
    return (pair.cael["seconds"] + pair.cael.get("prepare_seconds", 0.0)) / pair.obp["seconds"]


def _all(
    pairs: list[Pair],
    claim: str,
    which: Callable[[Pair], bool],
    of: Callable[[Pair], float | None],
    limit: float,
) -> Verdict:
    """A claim that a ratio is at most `limit` for all these pairs; the largest of each size is told."""
    worst: dict[str, tuple[float, Pair]] = {}
    for pair in filter(which, pairs):
        ratio = of(pair)
        if ratio is not None and ratio >= worst.get(pair.size, (0.0, pair))[0]:
            worst[pair.size] = ratio, pair
    told = [f"{size}: {pair.bound}{ratio:.3g}x {TITLES[pair.task]}" for size, (ratio, pair) in worst.items()]
    known = all(ratio <= limit and pair.bound in ("", "<") for ratio, pair in worst.values())
    return Verdict(claim, bool(worst) and known, "; ".join(told))


def _faster(pairs: list[Pair], claim: str, task: str, times: float) -> Verdict:
    found = {p.size: 1 / r for p in pairs if p.task == task and (r := p.ratio("seconds")) is not None}
    told = [f"{size}: {ratio:.3g} times faster" for size, ratio in found.items()]
    return Verdict(claim, bool(found) and min(found.values()) >= times, "; ".join(told))


def markdown(pairs: list[Pair], command: str, machine: str, versions: dict[str, dict[str, str]], limit: float) -> str:
    """The whole report as a page."""
    sides = [", ".join(f"{name} {number}" for name, number in each.items()) for each in versions.values()]
    lines = [
        "# Side by side with obp",
        "",
        f"Made by `{command}` on {machine}; two threads for each side.",
        f"cael's side: {sides[0]}. obp's side: {sides[1]}.",
        f"Load of the machine during the runs: {_loads(pairs)}. Above about 2, times are disturbed by other work.",
        "",
        *NOTES.format(limit=limit).strip().splitlines(),
        "",
        "## What holds",
        "",
        *(f"- **{'holds' if v.holds else 'does not hold'}**: {v.claim.strip()} ({v.numbers})" for v in verdicts(pairs)),
    ]
    for size in dict.fromkeys(pair.size for pair in pairs):
        table = rows([pair for pair in pairs if pair.size == size])
        lines += [
            "",
            f"## {size}",
            "",
            "| " + " | ".join(HEADERS) + " |",
            "|---" + "|--:" * (len(HEADERS) - 1) + "|",
        ]
        lines += ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def _loads(pairs: list[Pair]) -> str:
    """The smallest and the largest load that was seen: a reader must be able to tell a quiet run from another."""
    seen = [side["load"] for pair in pairs for side in (pair.cael, pair.obp or {}) if "load" in side]
    return f"{min(seen):.1f} to {max(seen):.1f}" if seen else "unknown"


NOTES = """
Both sides read the same arrays: contexts, actions, rewards, propensities, the target's and the logging
policy's probabilities of all actions, and the predictions of an outcome model, so that both compute the same
numbers. Every task runs in a process of its own, after a warm-up on 400 rows. Times are medians of up to nine
runs, each on a log that was just built (so what cael keeps with a log is computed anew). Memory is the peak
of the resident set during the first run, above what was resident before it. Errors are distances from the
true value, which is known. The panel is LoggedMean, IPS, SNIPS, DM, DR and SNDR: cael's with studentised
bootstrap intervals of 999 resamples and diagnostics, building the log counted in time and memory; obp's is
`summarize_off_policy_estimates` on the same estimators but LoggedMean, with its default of 100 resamples, and
it has no diagnostics. The bootstrap rows use 999 resamples on both sides. `evaluate()` is cael's default
panel, which trains a cross-fitted outcome model, and obp has nothing to set against it here. A side that did
not finish within {limit:g} seconds is shown as "> limit". With the same embedding both sides of MIPS minimise
the same penalised likelihood, each with its own solver and stopping rule, so their errors should agree.
"""
