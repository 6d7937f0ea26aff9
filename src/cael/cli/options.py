"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from cael.io.databases import Query
from cael.io.joined import Joined
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.estimators import Estimator
    from cael.judging.thresholds import Thresholds


def number(text: str, kind: type = float) -> Any:
    """A number, or a ValueError; also where Python would read one and others would not: 1_0, \u0661, ' 1'."""
    try:
        if text.isascii() and "_" not in text and text == text.strip():
            return kind(text)
    except ValueError:
        pass
    raise ValueError(f"expected a {'whole ' if kind is int else ''}number; got {text!r}")


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    """A whole number; 1.5 is none."""
    return int(number(tokens[0].value, int))


def _number(_: Any, tokens: Sequence[Any]) -> float:
    return float(number(tokens[0].value))


def _numbers(_: Any, tokens: Sequence[Any]) -> list[float]:
    return [float(number(token.value)) for token in tokens]


Whole = Annotated[int, Parameter(converter=_whole)]
MaybeWhole = Annotated[int | None, Parameter(converter=_whole)]
Number = Annotated[float, Parameter(converter=_number)]
MaybeNumber = Annotated[float | None, Parameter(converter=_number)]
Numbers = Annotated[list[float] | None, Parameter(converter=_numbers, consume_multiple=True, negative=())]
Format: TypeAlias = Literal["table", "json", "markdown"]
Log = Annotated[
    str,
    Parameter(
        help="A file (Parquet, CSV, Arrow, JSON lines, dsjson, .npz), a folder of them, a pattern in quotes, a Delta "
        "or Iceberg table, or with --query a DuckDB file or the URL of a database."
    ),
]
Columns_ = Annotated[Columns | None, Parameter(name="*", group="Columns", consume_multiple=True, negative=())]
Policies = Annotated[list[str], Parameter(negative=())]
Guardrails = Annotated[
    list[str] | None,
    Parameter(
        negative=(),
        help="What may not get worse than by so much: latency:min:+2%, clicked:-0.01, cost:min:limit=0.05. Repeat it.",
    ),
]
Baseline = Annotated[
    str | None,
    Parameter(help="The policy that lifts are over, in any of the forms of a policy; by default the logging policy."),
]
Flag = Annotated[bool, Parameter(negative=())]
Printed = Annotated[Format, Parameter(help="Print a table, JSON or Markdown.")]
Out = Annotated[Path | None, Parameter(help="Write a report to this HTML file.")]


@Parameter(name="*", group="Reading")
@dataclass(frozen=True)
class Reading:
    """How the log is read."""

    actions: str | None = None
    "A table of all actions: a column 'action', and columns of features."
    n_actions: MaybeWhole = None
    "The number of actions, where they are numbered 0 .. n-1 and the log need not hold all."
    logging: str | None = None
    "The logging policy, in any of the forms of a policy; 'estimate' or 'estimate:MODEL' (logistic, products, "
    "boosting, python:MODULE:CLASSIFIER) estimates it, 'none' does without."
    drop_invalid: Flag = False
    "Leave out rows with missing or impossible values, and report them, instead of refusing the log."
    query: str | None = None
    "The rows of a database: a query, which is run once. The log is postgresql://..., sqlite:///FILE or a DuckDB file."
    table: str | None = None
    "The rows of a database: a table, in place of a query."
    rewards: str | None = None
    "A table with the rewards, where the log has none; it is joined by the column --on."
    on: str | None = None
    "The column by which --rewards is joined, such as a decision's or a subject's id."
    no_reward: MaybeNumber = None
    "What a decision earned that has no row in --rewards; without it, that is an error."
    config: Path | None = None
    "A TOML file with options; those of the command line win."
    seed: Whole = 0
    "Seed of everything random."

    def source(self, log: str) -> str | Query | Joined:
        """What to read: the log itself, a query to it, or its decisions with their rewards."""
        from cael.errors import InputError

        rows = log if self.query is None and self.table is None else Query(log, self.query, self.table)
        if self.rewards is None and self.on is None and self.no_reward is None:
            return rows
        if self.rewards is None or self.on is None:
            raise InputError("--rewards FILE and --on COLUMN go together: the rewards, and the column to join them by.")
        return Joined(rows, self.rewards, self.on, self.no_reward)


@Parameter(name="*", group="Judging")
@dataclass(frozen=True)
class Judging:
    """By which thresholds the answer is judged."""

    threshold: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    "Where a doubt becomes a caution and a refusal, such as effective_rows=1000,200. Repeat it."
    thresholds: Annotated[tuple[str, ...], Parameter(negative=(), show=False)] = ()
    "The same from the table [thresholds] of a configuration file."

    def limits(self) -> Thresholds:
        """The thresholds, those of the command line before those of the file."""
        from cael.judging.thresholds import thresholds_from

        return thresholds_from(dict(map(limit_of, (*self.thresholds, *self.threshold))))


def limit_of(text: str) -> tuple[str, float | tuple[float, ...]]:
    """("drift", (0.5, 1.0)) of 'drift=0.5,1', ("p_value", 0.01) of 'p_value=0.01'."""
    from cael.errors import InputError

    name, _, numbers = text.partition("=")
    try:
        values = tuple(float(number) for number in numbers.split(","))
    except ValueError:
        raise InputError(
            f"--threshold must be NAME=CAUTION,REFUSE, or NAME=NUMBER for one that has only one; got {text!r}."
        ) from None
    return name.strip().replace("-", "_"), values[0] if len(values) == 1 else values


def specs_of(texts: Sequence[str]) -> dict[str, str]:
    """Specs by name, from texts such as 'new=choice:best'."""
    from cael.errors import PolicyError
    from cael.io.specs import named

    specs: dict[str, str] = {}
    for text in texts:
        name, spec = named(text)
        if name in specs:
            raise PolicyError(f"two policies are named {name!r}: name them apart, as in --policy new={spec}.")
        specs[name] = spec
    return specs


def estimators_of(names: Sequence[str]) -> list[Estimator]:
    """Estimators by name; "all" is every one."""
    from cael.errors import InputError
    from cael.results.evaluate import panel

    known = {type(estimator).__name__: estimator for estimator in (*panel("all"), *panel("learned"))}
    if list(names) == ["all"]:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"unknown estimator {unknown[0]!r}; there are: {', '.join(known)}, or 'all'.")
    return [known[name] for name in names]
