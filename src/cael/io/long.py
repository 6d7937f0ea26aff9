"""Policies given as a table of their own: (decision, action, probability or score), or (action, ...) for all alike."""

from __future__ import annotations

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import PolicyError
from cael.io import cells
from cael.io.encode import Actions, action_numbers, padded, told
from cael.io.kinds import is_list
from cael.io.roles import CONVENTIONS, conventional
from cael.io.sources import Source, open_source
from cael.io.specs import PolicySpec
from cael.policies.among import AmongEligible
from cael.policies.policy import Policy, Tabular
from cael.policies.scored import EpsilonGreedy
from cael.policies.topk import TopK

PROBABILITY = ("probability", "prob", "pi", "p", "target_probability", "action_probability")
SCORE = ("score", "scores", "value")


def long_policy(spec: PolicySpec, log: Source, actions: Actions, kept: Ints | None, id_column: str | None) -> Policy:
    """The policy of a long table; with a column of decision ids it is joined to the log by them."""
    table = exploded(open_source(spec.what))
    scored = spec.kind in ("softmax", "greedy")
    value = _one_of(table, SCORE if scored else PROBABILITY, "score" if scored else "probability", spec)
    action = _one_of(table, CONVENTIONS["action"], "action", spec)
    own_id = conventional(table, (str(id_column).lower(), *CONVENTIONS["id"]))
    table.load([value, action, *([] if own_id is None else [own_id])])
    numbers = _actions_of(table, action, actions, spec)
    values, wrong = cells.numbers(value, table.chunks(value))
    if wrong:
        raise PolicyError(f"policy '{spec}': {told(wrong[0], table)}.")
    if len(numbers) == 0:
        raise PolicyError(f"policy '{spec}': {table.name} has no rows.")
    if own_id is None and spec.kind == "greedy" and len(np.unique(numbers)) == len(numbers) == len(actions):
        return EpsilonGreedy(values[np.argsort(numbers)], spec.epsilon)
    if own_id is None:
        return _context_free(spec, numbers, values, actions)
    if id_column is None:
        raise PolicyError(
            f"policy '{spec}': its column {own_id!r} names decisions, but the log has no column for their ids. Name it "
            "with id= (--id)."
        )
    rows = _rows_in_log(spec, log, id_column, table, own_id, kept)
    return _joined(spec, rows, numbers, values, actions)


def exploded(table: Source) -> Source:
    """A table of decisions with lists `a` of actions and `p` of their probabilities (dsjson), as one row for each
    action."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not {"decision_id", "a", "p"} <= set(table.names) or not (
        is_list(table.type_of("a")) and is_list(table.type_of("p"))
    ):
        return table
    rows = pa.Table.from_batches(table.batches(["decision_id", "a", "p"]))
    a, p = (rows.column(name).combine_chunks() for name in ("a", "p"))
    if not pc.list_value_length(a).equals(pc.list_value_length(p)):
        raise PolicyError(f"{table.name}: the lists a and p must have the same length in every row.")
    ids = rows.column("decision_id").combine_chunks().take(pc.list_parent_indices(a))
    return open_source(pa.table({"decision_id": ids, "action": a.flatten(), "probability": p.flatten()}))


def _one_of(table: Source, names: tuple[str, ...], what: str, spec: PolicySpec) -> str:
    column = conventional(table, names)
    if column is None:
        raise PolicyError(
            f"policy '{spec}': {table.name} needs a column {what!r} (or {', '.join(names[1:])}); it has "
            f"{', '.join(map(repr, table.names))}."
        )
    return column


def _actions_of(table: Source, column: str, actions: Actions, spec: PolicySpec) -> Ints:
    numbers, wrong = action_numbers(column, table.labels(column), actions)
    if wrong:
        raise PolicyError(
            f"policy '{spec}': {told(wrong[0], table)}. An action table (--actions) or --n-actions lists actions "
            "that the log does not hold."
        )
    return numbers


def _context_free(spec: PolicySpec, numbers: Ints, values: Floats, actions: Actions) -> Policy:
    k = len(actions)
    counts = np.bincount(numbers, minlength=k)
    if (counts > 1).any():
        label = actions.labels[int(np.flatnonzero(counts > 1)[0])]
        raise PolicyError(
            f"policy '{spec}' lists action {label!r} more than once. If it differs from decision to decision, it "
            f"needs a column of decision ids ({', '.join(CONVENTIONS['id'])})."
        )
    listed = TopK(
        numbers[None, :], _weights(spec, np.zeros(len(numbers), dtype=np.intp), values, 1, k)[None, :], k, spec.rest
    )
    table = np.full(k, float(listed.rest_each[0]))
    table[numbers] = listed.listed[0]
    return AmongEligible(Tabular(table)) if spec.kind == "softmax" else Tabular(table)


def _rows_in_log(spec: PolicySpec, log: Source, id_column: str, table: Source, own_id: str, kept: Ints | None) -> Ints:
    """For each row of the table, the row of the log with its decision id (-1: not in the log)."""
    codes, distinct, _ = cells.labels(id_column, log.labels(id_column))
    if kept is not None:
        codes = codes[kept]
    row_of = np.full(len(distinct) + 1, -1, dtype=np.intp)
    row_of[codes] = np.arange(len(codes))
    listed_codes, ids, wrong = cells.labels(own_id, table.labels(own_id))
    if wrong:
        raise PolicyError(f"policy '{spec}': {told(wrong[0], table)}.")
    if distinct and ids and type(distinct[0]) is not type(ids[0]):
        distinct, ids = [str(each) for each in distinct], [str(each) for each in ids]
    known = {label: row_of[code] for code, label in enumerate(distinct)}
    rows: Array = np.array([known.get(label, -1) for label in ids], dtype=np.int32)[listed_codes]
    listed = np.zeros(len(codes), dtype=bool)
    listed[rows[rows >= 0]] = True
    if not listed.all():
        lost = np.flatnonzero(~listed)
        label = distinct[codes[lost[0]]]
        at = lost if kept is None else kept[lost]
        raise PolicyError(
            f"policy '{spec}' has no row for {len(lost):,} of the {len(codes):,} decisions of the log, such as "
            f"{label!r} ({log.places(at)})."
        )
    return rows


def _joined(spec: PolicySpec, rows: Ints, numbers: Ints, values: Floats, actions: Actions) -> Policy:
    if (rows < 0).any() or (rows[1:] < rows[:-1]).any():  # not in the order of the log, or with others in between
        used = np.flatnonzero(rows >= 0)
        order = used[np.argsort(rows[used], kind="stable")]
        rows, numbers, values = rows[order], numbers[order], values[order]
    n, k = int(rows.max()) + 1, len(actions)
    counts = np.bincount(rows, minlength=n)
    weights = _weights(spec, rows, values, n, k)
    return TopK(padded(counts, numbers, -1), padded(counts, weights, 0.0), k, spec.rest)


def _weights(spec: PolicySpec, rows: Ints, values: Floats, n: int, k: int) -> Floats:
    """Probabilities of the listed actions, from probabilities or from scores; rows must be sorted."""
    if spec.kind == "table":
        return values
    best = np.full(n, -np.inf)
    np.maximum.at(best, rows, values)
    if spec.kind == "softmax":
        if not spec.temperature > 0:
            raise PolicyError(f"temperature must be a positive number; got {spec.temperature}.")
        weight: Array = np.exp((values - best[rows]) / spec.temperature)
        return weight / np.bincount(rows, weights=weight, minlength=n)[rows]
    if not 0 <= spec.epsilon <= 1:
        raise PolicyError(f"epsilon must be in [0, 1]; got {spec.epsilon}.")
    top = np.flatnonzero(values == best[rows])
    first = top[np.unique(rows[top], return_index=True)[1]]
    counts = np.bincount(rows, minlength=n)
    greedy = spec.epsilon / counts[rows]  # explores among the listed actions
    greedy[first] += 1 - spec.epsilon
    return greedy
