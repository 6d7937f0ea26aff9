"""Which column is what: named by the user, or found by a conventional name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, final

from cael.errors import InputError
from cael.io.kinds import is_list
from cael.io.layouts import REWARDS, contexts_in, names_in, refuse_packed
from cael.io.sources import Source, shown

CONVENTIONS: dict[str, tuple[str, ...]] = {
    "action": ("action", "action_id", "actions", "arm", "arm_id", "chosen_action", "item_id", "item"),
    "reward": ("reward", "rewards", "click", "clicked", "conversion", "outcome"),
    "propensity": (
        "propensity", "propensity_score", "propensities", "pscore", "action_probability", "action_prob",
        "logging_probability",
    ),
    "cluster": ("cluster", "cluster_id", "user_id", "user", "session_id", "session"),
    "timestamp": ("timestamp", "time", "datetime", "ts", "event_time", "logged_at"),
    "sampling_weight": ("sampling_weight", "sample_weight"),
    "segment": ("segment",),
    "id": ("decision_id", "request_id", "impression_id", "round_id"),
}  # fmt: skip
"""The names that are looked for, in this order and in any case, where a column is not named."""

ELIGIBLE = ("eligible", "eligible_actions")
"""Columns of lists with these names are the eligible actions."""
CONTEXT_LISTS = ("contexts", "context", "features", "x")
CONTEXT_PREFIXES = ("context_*", "x_*", "ctx_*", "feature_*", "user_feature_*")


@final
@dataclass(frozen=True)
class Columns:
    """Which column of the log is what. Those that are not named are looked for by conventional names."""

    action: str | None = None
    "The action taken: whole numbers, or text."
    reward: str | None = None
    "The reward earned."
    propensity: str | None = None
    "The logging policy's probability of the action that it took."
    contexts: tuple[str, ...] | None = None
    "What was known before the decision: names of columns, patterns such as 'x_*', or a column of lists."
    cluster: str | None = None
    "Rows that belong together, such as a user: intervals become cluster-robust."
    timestamp: str | None = None
    "When the decision was made."
    segment: tuple[str, ...] | None = None
    "Values are also given by this column, for example country. May be repeated."
    id: str | None = None
    "A name for each decision; needed to join a policy given as a long table."
    eligible: str | None = None
    "The actions that could be taken: a column of lists; with --period, a table with the columns action and period."
    metric: tuple[str, ...] | None = None
    "Further rewards, such as revenue: columns of numbers. May be repeated; the first is the reward if none is named."
    sampling_weight: str | None = None
    "How many decisions a row stands for, such as 10 where a tenth of these rows was kept: every mean is then weighted."
    period: str | None = None
    "The period of each row, by which a table of eligible actions is joined."

    layout: str | None = None
    "The tool that wrote the table, whose names for the columns are then known: eppo, growthbook."

    @property
    def of_eligible(self) -> str | None:
        """The column of the log that says which actions were eligible."""
        return self.period or self.eligible

    def listed(self) -> list[str]:
        """The columns that are named, once for each role."""
        table = "eligible" if self.period else None
        roles = [value for role, value in vars(self).items() if value and role not in (table, "layout")]
        return [name for role in roles for name in ((role,) if isinstance(role, str) else role)]


def as_columns(given: Columns | Mapping[str, Any] | None) -> Columns:
    """Columns from a mapping such as {"action": "item", "contexts": ["x_*"]}."""
    if isinstance(given, Columns):
        return given
    known = [field.name for field in fields(Columns)]
    roles = dict(given or {})
    unknown = [name for name in roles if name not in known]
    if unknown:
        raise InputError(f"unknown role {unknown[0]!r} of a column; there are: {', '.join(known)}.")
    for name in ("contexts", "segment", "metric"):
        if roles.get(name) is not None:
            roles[name] = (roles[name],) if isinstance(roles[name], str) else tuple(roles[name])
    return Columns(**roles)


def resolve(source: Source, given: Columns) -> Columns:
    """The columns of this source: those named must exist, others are looked for; action and reward are needed."""
    if given.layout is not None:
        names_in(given.layout, "action")  # or an error, where there is no such layout
    refuse_packed(given.layout, source.name, source.types)
    roles: dict[str, Any] = {}
    taken = [name for name in given.listed() if name not in (given.metric or ())]
    shared = (*(given.segment or ()), *(given.contexts or ()))  # a segment may have another role; a context is told
    alone = [name for name in taken if name not in shared]
    for role, names in CONVENTIONS.items():
        value = getattr(given, role)
        if value is None:
            value = conventional(
                source,
                (*(names_in(given.layout, role) if given.layout else ()), *names),
                taken if role == "segment" else alone,
            )
            roles[role] = (value,) if role == "segment" and value is not None else value
            continue
        for name in (value,) if isinstance(value, str) else value:
            source.need(name)
        roles[role] = value
    metrics = metric_columns(source, given.metric or ())
    roles["reward"] = roles["reward"] or next(iter(metrics), None)
    for role in ("action", "reward"):
        if roles[role] is None:
            raise InputError(
                f"{source.name} has no column for the {role}: none of its columns has a usual name "
                f"({', '.join(CONVENTIONS[role])}). "
                f"{REWARDS + '. ' if given.layout and role == 'reward' else ''}"
                f"{spread_over(source, role)}Name it with {role}= (--{role}); "
                f"there are {shown(source.names)}."
            )
    usual = contexts_in(given.layout, source.names) if given.layout and given.contexts is None else None
    contexts = _context_columns(source, given.contexts) if usual is None else usual
    used = {roles[role]: role.replace("_", " ") for role in ("action", "propensity", "sampling_weight", "reward")}
    for name in metrics:
        if used.get(name, "reward") != "reward":
            raise InputError(f"column {name!r} is the {used[name]} and cannot be a metric.")
    used |= {name: used.get(name, "metric") for name in metrics}
    for name in contexts:
        if given.contexts and name in used:
            raise InputError(
                f"column {name!r} is the {used[name]} and cannot be a context: contexts are what was known before the "
                "decision."
            )
    return Columns(
        **roles, contexts=contexts, eligible=_eligible_column(source, given), period=given.period,
        layout=given.layout,
        metric=tuple(name for name in metrics if name != roles["reward"]) or None,
    )  # fmt: skip


def spread_over(source: Source, role: str) -> str:
    """What to say of a role that looks like one column for each action."""
    usual = tuple(f"{name}_" for name in CONVENTIONS[role])
    several = [name for name in source.names if name.lower().startswith(usual)]
    if role != "action" or len(several) < 2:
        return ""
    return (
        f"The columns {', '.join(map(repr, several[:3]))} look like one for each action: write one column with the "
        "name of the action that was taken (in pandas frame[columns].idxmax(axis=1)). "
    )


def metric_columns(source: Source, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of metrics, which must exist, each once."""
    for at, name in enumerate(names):
        source.need(name)
        if name in names[:at]:
            raise InputError(f"metric {name!r} is named twice. Name every metric once.")
    return tuple(names)


def _eligible_column(source: Source, given: Columns) -> str | None:
    """The column of lists of eligible actions; with a period, whatever names their table."""
    if given.period is not None or given.eligible is not None:
        source.need(given.period or str(given.eligible))
        return given.eligible
    name = conventional(source, ELIGIBLE)
    return name if name is not None and is_list(source.type_of(name)) else None


def conventional(source: Source, names: Sequence[str], taken: Sequence[str] = ()) -> str | None:
    """The column that has the first of these names, in any case, and is not taken for something else."""
    lower = {name.lower(): name for name in reversed(source.names) if name not in taken}
    return next((lower[name] for name in names if name in lower), None)


def _context_columns(source: Source, given: tuple[str, ...] | None) -> tuple[str, ...]:
    if given is not None:
        return tuple(dict.fromkeys(name for pattern in given for name in matching(source, pattern, "contexts")))
    one = conventional(source, CONTEXT_LISTS)
    if one is not None and is_list(source.type_of(one)):
        return (one,)
    for pattern in CONTEXT_PREFIXES:
        names = [name for name in source.names if fnmatchcase(name.lower(), pattern)]
        if names:
            return tuple(names)
    return () if one is None else (one,)


def matching(source: Source, pattern: str, what: str) -> list[str]:
    """The columns that a name or a pattern with * means, in the order of the table."""
    if "*" not in pattern:
        source.need(pattern)
        return [pattern]
    names = [name for name in source.names if fnmatchcase(name, pattern)]
    if not names:
        raise InputError(f"{what}: no column of {source.name} matches {pattern!r}; it has {shown(source.names)}.")
    return names
