"""Policies from the columns of a log, from long tables and from Python objects: a spec in, a Policy out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, PolicyError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.encode import (
    Actions,
    action_numbers,
    by_suffix,
    columns_of,
    matrix,
    padded,
    said_order,
    told,
)
from cael.io.files import format_of
from cael.io.kinds import is_list, is_text
from cael.io.long import long_policy
from cael.io.objects import load_learned, load_object
from cael.io.sources import Source
from cael.io.specs import HELP, PolicySpec, parse
from cael.policies.mixture import Mixture
from cael.policies.policy import LoggedOnly, Policy, Tabular, Uniform
from cael.policies.scored import EpsilonGreedy, Softmax
from cael.policies.topk import TopK


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a log inside its source. kept: (n,) row numbers, or None for all. id: the column of decision ids."""

    source: Source
    actions: Actions
    kept: Ints | None
    id: str | None

    def only(self, values: Array) -> Array:
        return values if self.kept is None else values[self.kept]

    def refuse(self, name: str, flaws: list[Flaw]) -> None:
        """An error for flaws on rows of the log; a policy's rows are never left out, that would choose the data."""
        for flaw in flaws:
            rows = flaw.rows if self.kept is None else np.intersect1d(flaw.rows, self.kept)
            if len(rows):
                flaw = Flaw(flaw.column, flaw.what, rows, flaw.example)
                raise PolicyError(f"policy {name!r} on {self.source.name}: {told(flaw, self.source)}. Correct them.")


def build(given: str | Mapping[str, Any] | PolicySpec, rows: Rows, logging: Policy | None) -> Policy:
    """The policy that a spec means on these rows."""
    spec = parse(given)
    if isinstance(spec, str):
        spec = guess(spec, rows.source)
    if spec.kind == "uniform":
        return Uniform(len(rows.actions))
    if spec.kind == "logging":
        if logging is None:
            raise PolicyError(
                "policy 'logging': the logging policy is not known for all actions. Give it with logging= (--logging)."
            )
        return logging
    if spec.kind == "python":
        return load_object(spec)
    if spec.kind == "learned":
        return load_learned(spec.what, rows.actions, logging)
    try:
        if spec.kind == "table" or (spec.kind in ("softmax", "greedy") and format_of(spec.what)):
            return long_policy(spec, rows.source, rows.actions, rows.kept, rows.id)
        return BUILDERS[spec.kind](spec, rows)
    except PolicyError as error:
        text = str(error)
        if text.startswith("policy "):
            raise
        counted = "" if rows.kept is None else " Rows are counted without those that were left out."
        raise PolicyError(f"policy '{spec}': {text}{counted}") from None


def columns_named(spec: str, source: Source) -> list[str]:
    """The columns of a log that a policy is made of; none where it is made of something else, or wrong."""
    try:
        parsed = parse(spec)
        if isinstance(parsed, str):
            return [parsed] if parsed in source.names else []
        in_log = parsed.kind in BUILDERS and not format_of(parsed.what)
        return columns_of(source, parsed.what, parsed.kind) if in_log else []
    except InputError:
        return []


def guess(name: str, source: Source) -> PolicySpec:
    """A bare column: lists are all probabilities, a float is that of the logged action, text a choice."""
    import pyarrow.types as t

    if name not in source.names:
        raise PolicyError(
            f"policy {name!r} is neither a column of {source.name} (it has {', '.join(map(repr, source.names[:30]))}) "
            f"nor a file nor one of the kinds:\n{HELP}"
        )
    kind = source.type_of(name)
    if is_list(kind):
        return PolicySpec("dense", name)
    if t.is_floating(kind) or t.is_decimal(kind):
        return PolicySpec("probability", name)
    if is_text(kind):
        return PolicySpec("dense" if str(source.first(name) or "").startswith("[") else "choice", name)
    raise PolicyError(
        f"policy {name!r}: a column of {kind} can mean two things. Say probability:{name} if it is the probability of "
        f"the logged action, choice:{name} if it is the action that the policy chooses."
    )


def _probability(spec: PolicySpec, rows: Rows) -> Policy:
    values, wrong = cells.numbers(spec.what, _chunks(rows, spec.what))
    outside = ~((values >= 0) & (values <= 1) | np.isnan(values))
    rows.refuse(str(spec), [*wrong, *cells.flaws(spec.what, {"is not in [0, 1]": outside}, values)])
    return LoggedOnly(rows.only(values))


def _table_of(spec: PolicySpec, rows: Rows) -> Floats:
    """(n, k) numbers from a column of lists or from k columns."""
    names, k = columns_of(rows.source, spec.what, f"policy '{spec}'"), len(rows.actions)
    order = None
    if "*" in spec.what and "+" not in spec.what:
        names = by_suffix(spec.what, names, rows.actions, f"policy '{spec}'")
    else:
        order = said_order(f"policy '{spec}'", rows.actions, spec.actions)
    table, _, wrong = matrix(rows.source, names, 0, categories=False)
    rows.refuse(str(spec), wrong)
    if table.shape[1] != k:
        more = isinstance(rows.actions.labels[-1], int) and table.shape[1] > max(k - 1, rows.actions.labels[-1])
        advice = f" Give n_actions={table.shape[1]} (--n-actions) if there are that many." if more else ""
        raise PolicyError(
            f"policy '{spec}' gives {table.shape[1]} numbers per row, but there are {k} actions: "
            f"{rows.actions.shown()}.{advice} An action table (--actions) lists actions that the log does not hold."
        )
    return rows.only(table if order is None else table[:, order])


def _choice(spec: PolicySpec, rows: Rows) -> Policy:
    chosen, wrong = action_numbers(spec.what, _labels(rows, spec.what), rows.actions)
    rows.refuse(str(spec), wrong)
    k = len(rows.actions)
    if not 0 <= spec.epsilon <= 1:
        raise PolicyError(f"epsilon must be in [0, 1]; got {spec.epsilon}.")
    numbers = rows.only(chosen)[:, None]
    choice = TopK(numbers, np.ones(numbers.shape), k)
    return choice if spec.epsilon == 0 else Mixture([choice, Uniform(k)], [1 - spec.epsilon, spec.epsilon])


def _topk(spec: PolicySpec, rows: Rows) -> Policy:
    columns = columns_of(rows.source, spec.what, f"policy '{spec}'")
    if len(columns) != 2:
        raise PolicyError(
            f"policy '{spec}': topk needs two columns of lists, actions and probabilities, as "
            f"topk:ACTIONS+PROBABILITIES; got {len(columns)}."
        )

    rows.source.load(columns)
    as_actions = partial(action_numbers, actions=rows.actions)
    lengths, (numbers,), wrong = cells.lists(columns[0], rows.source.chunks(columns[0]), as_actions)
    other, (listed,), also = cells.lists(columns[1], rows.source.chunks(columns[1]), cells.numbers)
    rows.refuse(str(spec), [*wrong, *also])
    apart = np.flatnonzero(lengths != other)
    if len(apart):
        what = f"and column {columns[1]!r} have lists of different lengths"
        rows.refuse(str(spec), [Flaw(columns[0], what, apart, f"{lengths[apart[0]]} and {other[apart[0]]}")])
    return TopK(
        rows.only(padded(lengths, numbers, -1)), rows.only(padded(lengths, listed, 0.0)), len(rows.actions), spec.rest
    )


def _chunks(rows: Rows, column: str) -> list[Any]:
    rows.source.need(column)
    return rows.source.chunks(column)


def _labels(rows: Rows, column: str) -> list[Any]:
    rows.source.need(column)
    return rows.source.labels(column)


BUILDERS: dict[str, Callable[[PolicySpec, Rows], Policy]] = {
    "probability": _probability,
    "dense": lambda spec, rows: Tabular(_table_of(spec, rows), copy=False),
    "topk": _topk,
    "choice": _choice,
    "softmax": lambda spec, rows: Softmax(_table_of(spec, rows), temperature=spec.temperature),
    "greedy": lambda spec, rows: EpsilonGreedy(_table_of(spec, rows), epsilon=spec.epsilon),
}
