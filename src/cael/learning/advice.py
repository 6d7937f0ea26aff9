"""Learned: what `learn` gives: a policy, whether to ship it, and why."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.learning.choice import PathPoint
from cael.learning.evidence import Evidence
from cael.learning.explained import explanation, seen_on
from cael.learning.export import as_python, as_sql
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.limits import Limits
from cael.learning.saved import save_policy
from cael.learning.scorers import NetworkScores
from cael.learning.watching import Watch
from cael.log.logged import LoggedData
from cael.results.decision import BOUNDS
from cael.results.evaluation import Evaluation
from cael.results.planning import Plan
from cael.results.plots import plotted
from cael.results.scorecard import Measured
from cael.results.sheet import Column, Note, Sheet, Shown, level_text, number, signed

SHIP, KEEP = "ship", "keep"
SHOWN = 8
"""Candidates that the table shows."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Learned(Shown):
    """A learned policy, and whether it should replace the old one.

    decision: "ship", or "keep" the old policy. reasons: of that, each a sentence. policy: what was learned, a policy
    like any other. evaluation: its certificate, an evaluation on rows that took no part in learning or choosing it.
    path: all that was tried, each on rows that it did not see. changed: share of the decisions that it changes. rows:
    how many learned and chose; the evaluation says how many certified. limits: what it had to keep to. plan: what it
    would take to show its lift (None: it is shown, or there is none to show). notes: what the certificate assumes.
    looked: some of the rows that it was learned from, to put it into words.
    guarded: the guardrails on the rows of the certificate. left: these rows, of a log in memory.
    """

    decision: str
    reasons: tuple[str, ...]
    policy: LearnedPolicy
    evaluation: Evaluation
    path: tuple[PathPoint, ...]
    changed: float
    rows: int
    limits: Limits
    plan: Plan | None = None
    notes: tuple[str, ...] = ()
    looked: Evidence | None = None
    guarded: tuple[Measured, ...] = ()
    left: LoggedData | None = None

    @property
    def ships(self) -> bool:
        """Whether the policy should replace the old one."""
        return self.decision == SHIP

    @property
    def verdict(self) -> Any:
        """Whether the certificate can be trusted."""
        return self.evaluation.verdict

    @property
    def lift(self) -> Estimate:
        """Of the learned policy over the old one, on the rows of the certificate."""
        return self.evaluation.lift

    @property
    def bound(self) -> float:
        """The lift is at least this, at the one-sided level."""
        return self.evaluation.lift_interval.low

    @property
    def chosen(self) -> PathPoint:
        """The candidate that was chosen, on rows that it did not see."""
        return next(point for point in self.path if point.chosen)

    def sentence(self) -> str:
        """The decision in words."""
        level, n = level_text(self.limits.level), self.evaluation.best.n
        word = "Ship it" if self.ships else "Keep the old policy"
        return (
            f"{word}: on {n:,} rows that took no part in learning, the lift is {signed(self.lift.value)} over "
            f"{number(self.evaluation.baseline.value)}, with {level} confidence at least {signed(self.bound)}."
        )

    def explain(self) -> str:
        """The policy in words: the tree, which rows change action, and why."""
        assert self.looked is not None
        return explanation(self.policy, seen_on(self.policy, self.looked))

    def save(self, path: str | Path) -> Path:
        """Write the policy to a JSON file, which `cael.read_policy` and `--policy learned:FILE` read."""
        return save_policy(self.policy, path, {"decision": self.decision, "lift": self.lift.value, "bound": self.bound})

    def watch(self) -> Watch:
        """The lift as it can be asked again with new rows: `.watch().more(new_log)`. Of a log in memory its first look
        is at the rows of the certificate."""
        assert self.looked is not None
        model = NetworkScores(self.looked.model, tuple(range(self.looked.folds)))
        fresh = Watch(self.policy, model, self.limits.level, self.limits.min_lift)
        return fresh if self.left is None else fresh.more(self.left)

    def to_python(self, name: str = "decide") -> str:
        """A Python function of a row's contexts that gives the decision; of a tree, or of the best linear score."""
        return as_python(self.policy, name)

    def to_sql(self, table: str = "decisions") -> str:
        """The same as an SQL query."""
        return as_sql(self.policy, table)

    def __repr__(self) -> str:
        return (
            f"Learned({self.decision}: {self.policy!r}, lift {signed(self.lift.value)}, at least {signed(self.bound)})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "decision": self.decision,
            "reasons": list(self.reasons),
            "sentence": self.sentence(),
            "policy": repr(self.policy),
            "candidate": self.chosen.candidate,
            "lift": self.lift.value,
            "bound": self.bound,
            "level": self.limits.level,
            "changed": self.changed,
            "rows_learned": self.rows,
            "rows_certified": self.evaluation.best.n,
            "limits": asdict(self.limits),
            "guardrails": [row.to_dict(self.limits.two_sided) for row in self.guarded],
            "notes": list(self.notes),
            "explanation": self.explain(),
            "path": [asdict(point) for point in self.path],
            "certificate": self.evaluation.to_dict(),
            "plan": None if self.plan is None else self.plan.to_dict(),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def sheet(self) -> Sheet:
        columns = (
            Column("candidate"), Column("play"), Column("lift", "lift"),
            Column("interval", "lift interval", f"{level_text(self.limits.two_sided)} interval", point="lift"),
            Column("changed", "percent", "changed"), Column("second", "rough", "E w²", wide=True),
        )  # fmt: skip
        points = self._shown()
        rows = tuple((p.candidate, p.play, p.lift, self._interval(p), p.changed, p.second) for p in points)
        summary = (Note(self.sentence(), "ok" if self.ships else "caution"), *map(Note, self.reasons))
        summary = (*summary, *(guarded_note(row) for row in self.guarded))
        if self.plan is not None:
            summary = (*summary, *map(Note, self.plan.sentences()))
        notes = (*(Note(note, "warn") for note in self.notes), *self.evaluation.verdict.notes())
        styles = tuple("better" if point.chosen else "" for point in points)
        title = f"{self.policy!r}\nlearned from {self.rows:,} rows; candidates on rows that they did not see"
        return Sheet(title, columns, rows, summary, notes, styles)

    def _shown(self) -> list[PathPoint]:
        """The chosen candidate, and the best of each kind."""
        ordered = sorted(self.path, key=lambda point: (not point.chosen, -point.promise))
        kinds = dict.fromkeys(point.candidate for point in ordered)
        return [next(point for point in ordered if point.candidate == kind) for kind in kinds][:SHOWN]

    def _interval(self, point: PathPoint) -> Interval:
        from cael.inference.intervals import quantile

        reach = quantile(self.limits.two_sided) * point.error
        return Interval(point.lift - reach, point.lift + reach, self.limits.two_sided, "normal")

    def plot(self, axes: Any = None) -> Any:
        """The lift of every kind of candidate on rows that it did not see, on Matplotlib's axes, which are returned."""
        return plotted(self.sheet(), "interval", "lift", (0.0, "old policy"), axes)


def guarded_note(row: Measured) -> Note:
    """A guardrail in words."""
    tone = {"within": "ok", "beyond": "warn"}.get(row.status, "caution")
    return Note(
        f"guardrail {row.metric.label}: lift {signed(row.lift.value)} {row.interval}, {BOUNDS[row.status]}.", tone
    )


def labelled(learned: Learned, labels: tuple[Any, ...] | None, contexts: tuple[str, ...] | None) -> Learned:
    """The same, with names of actions and contexts."""
    policy, evaluation = replace(learned.policy, labels=labels, contexts=contexts), learned.evaluation
    if labels is not None and evaluation.overlap is not None:
        evaluation = replace(evaluation, overlap=evaluation.overlap.labelled(labels))
    return replace(learned, policy=policy, evaluation=evaluation)
