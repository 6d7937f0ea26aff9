"""Decisions as Vowpal Wabbit logs them (dsjson): one JSON object a line, several decisions where it has slots.

The cost of the chosen action, its probability, the eligible actions with their features, all of their probabilities,
and what was known before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from cael.errors import InputError, LogError
from cael.io.features import Kinds, features_of, filled, kinds_with
from cael.io.files import File
from cael.io.json_lines import lines_of, loaded
from cael.io.spool import spooled, temporary

BATCH = 2**13
NEAR = 1e-3
"""By so much may the probability of the chosen action differ, relatively, from its place in the list: both are
rounded."""
IDS = ("_tag", "id", "_id", "action_id", "actionid", "item_id", "itemid")
"""Features that name an action, in this order."""
MANY = 2000
"""Shared features that become columns, at most."""


@final
@dataclass
class Counts:
    """What a first pass over the lines sees. named: for each way to name actions, in how many decisions it names
    all."""

    decisions: int = 0
    named: Counter[tuple[str, ...]] = field(default_factory=Counter)
    ids: dict[tuple[str, ...], set[Any]] = field(default_factory=dict)
    places: int = 0
    kinds: Kinds = field(default_factory=dict)
    outcomes: set[str] = field(default_factory=set)
    skipped: int = 0
    dangling: int = 0
    slots: bool = False
    sampled: bool = False

    def whole(self, name: tuple[str, ...] | None) -> bool:
        """Whether the actions that are named so are whole numbers; places are."""
        return name is None or all(map(_is_whole, self.ids[name]))

    def labels(self, name: tuple[str, ...] | None) -> tuple[Any, ...]:
        """All of these actions."""
        if name is None:
            return tuple(range(1, self.places + 1))
        return tuple(sorted(self.ids[name] if self.whole(name) else map(str, self.ids[name])))


@final
@dataclass(frozen=True)
class Decision:
    """One decision of a line. chosen: place in `actions`, the features of all of them. order: places of the eligible
    ones as logged, with their probabilities. labels: the cost, and what was observed."""

    where: str
    event: Mapping[str, Any]
    shared: Mapping[str, Any]
    actions: Sequence[Any]
    chosen: int
    order: Sequence[int]
    probabilities: Sequence[float]
    cost: float | None
    propensity: float | None
    original: float | None
    observed: Sequence[Any]
    id: str
    slot: int | None = None


def is_dsjson(path: Path) -> bool:
    """Whether the first line is a decision as Vowpal Wabbit logs it."""
    for number, block in lines_of(path):
        line = next(line for line in block.split(b"\n") if line.strip())
        event = loaded(path, number, line) if len(line) < 2**20 else {}
        return isinstance(event, dict) and isinstance(event.get("c"), dict) and "_multi" in event["c"]
    return False


def read_dsjson(files: Sequence[File]) -> tuple[File, ...]:
    """The decisions as Parquet: a first pass learns how actions are named and which features there are."""
    counts = Counts()
    for file in files:
        with file.watched():
            for decision in decisions_of(file.path, counts):
                _count(decision, counts)
    if counts.decisions == 0:
        raise LogError(
            f"{files[0].path} holds no decision: expected lines with the chosen action, its cost and its probability."
        )
    if len(counts.kinds) > MANY:
        raise InputError(
            f"{files[0].path} has {len(counts.kinds):,} shared features, more than the {MANY:,} that become columns. "
            "Write "
            "those that matter as a table of columns."
        )
    name = next((key for key in _ways(counts) if counts.named[key] == counts.decisions), None)
    folder, schema, notes = temporary(str(files[0].path)), _schema(counts, name), _notes(counts, name)
    written = []
    for file in files:
        with file.watched():
            rows = _batches(decisions_of(file.path, Counts()), counts, name, schema)
            parquet = spooled(folder, file.path.name, schema, rows, source=str(file.path))
            written.append(replace(parquet, notes=notes, actions=counts.labels(name)))
    return tuple(written)


def decisions_of(path: Path, counts: Counts) -> Iterator[Decision]:
    """The decisions of a file, in order. Lines that hold none are counted."""
    for first, block in lines_of(path):
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            event = loaded(path, number, line)
            if not isinstance(event, dict):
                raise InputError(f"{where} is no object: expected a decision of Vowpal Wabbit.")
            yield from _of_line(where, event, counts)


def _of_line(where: str, event: Mapping[str, Any], counts: Counts) -> Iterator[Decision]:
    if "c" not in event and ("RewardValue" in event or "EnqueuedTimeUtc" in event or "ActionTaken" in event):
        counts.dangling += 1
        return
    shared = event.get("c")
    if not isinstance(shared, dict) or not isinstance(shared.get("_multi"), list) or not shared["_multi"]:
        raise InputError(f"{where} has no list of actions c._multi: it is no decision of Vowpal Wabbit.")
    if event.get("_skipLearn"):
        counts.skipped += 1
        return
    counts.sampled |= _dropped(where, event) > 0
    if "_outcomes" in event:
        yield from _slots(where, event, shared, counts)
    else:
        yield _single(where, event, shared)


def _dropped(where: str, event: Mapping[str, Any]) -> float:
    """The probability with which decisions like this one were left out of the file."""
    dropped = event.get("pdrop", 0.0)
    if not isinstance(dropped, int | float) or not 0 <= dropped < 1:
        raise InputError(f"{where}: pdrop must be a number in [0, 1); got {dropped!r}.")
    return float(dropped)


def _single(where: str, event: Mapping[str, Any], shared: Mapping[str, Any]) -> Decision:
    chosen = _chosen(where, event, len(shared["_multi"]))
    order = [place - 1 for place in _places(where, "a", event.get("a", []))]
    return _decision(where, event, shared, chosen, order, event, str(event.get("EventId", "")), None)


def _chosen(where: str, event: Mapping[str, Any], count: int) -> int:
    """The place of the chosen action: _labelIndex counts from 0, _label_Action from 1."""
    index, action = event.get("_labelIndex"), event.get("_label_Action", event.get("_labelAction"))
    if index is None and action is None:
        raise InputError(f"{where} has neither _labelIndex nor _label_Action: which action was chosen?")
    place: Any = index if index is not None else int(action) - 1 if action is not None and _is_whole(action) else None
    if not _is_whole(place) or (action is not None and action != place + 1) or not 0 <= place < count:
        raise InputError(
            f"{where}: _labelIndex is {index!r} and _label_Action {action!r}: expected the place of one of {count} "
            "actions, "
            "counted from 0 and from 1."
        )
    return int(place)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _places(where: str, name: str, given: Any) -> list[int]:
    if not isinstance(given, list) or not all(map(_is_whole, given)):
        raise InputError(f"{where}: {name} must be a list of whole numbers; got {str(given)[:60]}.")
    return given


def _slots(where: str, event: Mapping[str, Any], shared: Mapping[str, Any], counts: Counts) -> Iterator[Decision]:
    """One decision for each slot of a page; each has its own list of actions that were left."""
    counts.slots = True
    slots, outcomes = shared.get("_slots"), event["_outcomes"]
    if not isinstance(slots, list) or not isinstance(outcomes, list) or len(slots) != len(outcomes):
        raise InputError(f"{where}: _outcomes must be a list with one entry for each entry of c._slots.")
    if any("_slot_id" in action for action in shared["_multi"] if isinstance(action, dict)):
        raise InputError(
            f"{where} is a slate: the actions of a slot are its own. Slates are not supported; write one row a slot."
        )
    for at, (slot, outcome) in enumerate(zip(slots, outcomes, strict=True)):
        here = f"{where}, slot {at}"
        if not isinstance(outcome, dict) or not isinstance(slot, dict):
            raise InputError(f"{here}: expected an object.")
        order = _places(here, "_a", outcome.get("_a", []))
        if not order:
            raise InputError(f"{here} has no list _a of its actions, the chosen one first.")
        both = {**shared, **{f"slot_{key}": value for key, value in slot.items() if not key.startswith("_")}}
        name = f"{event.get('EventId', where)}/{at}"
        yield _decision(here, event, both, order[0], order, outcome, name, at)


def _decision(
    where: str, event: Mapping[str, Any], shared: Mapping[str, Any], chosen: int, order: Sequence[int],
    labels: Mapping[str, Any], name: str, slot: int | None,
) -> Decision:  # fmt: skip
    p = labels.get("p", labels.get("_p", []))
    count = len(shared["_multi"])
    if len(set(order)) != len(order) or any(not 0 <= place < count for place in order):
        raise InputError(f"{where}: its list of actions must name different ones of the {count} in c._multi.")
    if not isinstance(p, list) or not all(isinstance(each, int | float) for each in p) or (p and len(p) != len(order)):
        raise InputError(
            f"{where}: expected a list of {len(order)} probabilities, one for each action; got {str(p)[:60]}."
        )
    observed = labels.get("o", labels.get("_o", []))
    propensity = _propensity(where, labels.get("_label_probability"), chosen, order, p)
    return Decision(
        where, event, shared, shared["_multi"], chosen, order if p else range(count), p,
        _number(where, labels, "_label_cost"), propensity, _number(where, labels, "_original_label_cost"),
        observed if isinstance(observed, list) else [], name, slot,
    )  # fmt: skip


def _propensity(where: str, given: Any, chosen: int, order: Sequence[int], p: Sequence[float]) -> float | None:
    """The probability of the chosen action, which must be the same in both places."""
    listed = p[order.index(chosen)] if p and chosen in order else None
    if given is None:
        return listed
    if not isinstance(given, int | float):
        raise InputError(f"{where}: _label_probability must be a number; got {given!r}.")
    if p and (listed is None or abs(listed - given) > NEAR * max(abs(given), abs(listed))):
        raise InputError(
            f"{where}: _label_probability is {given:g}, and the list of probabilities says {listed} for the chosen "
            "action."
        )
    return float(given)


def _number(where: str, labels: Mapping[str, Any], name: str) -> float | None:
    value = labels.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"{where}: {name} must be a number; got {value!r}.")
    return None if value is None else float(value)


def _count(decision: Decision, counts: Counts) -> None:
    """What the decision adds to the counts."""
    counts.decisions += 1
    for key in _names_all(decision.actions):
        counts.named[key] += 1
        counts.ids.setdefault(key, set()).update(id_of(action, key) for action in decision.actions)
    counts.places = max(counts.places, len(decision.actions))
    counts.kinds = kinds_with(counts.kinds, features_of(decision.where, decision.shared))
    counts.outcomes |= outcomes_of(decision).keys()


def _ways(counts: Counts) -> list[tuple[str, ...]]:
    """Ways to name actions: the better name first, then that which lies less deep."""
    return sorted(counts.named, key=lambda key: (IDS.index(key[-1].lower()), len(key), key))


def _names_all(actions: Sequence[Any]) -> list[tuple[str, ...]]:
    """The features that name every one of these actions, each differently."""
    first = actions[0]
    keys: list[tuple[str, ...]] = [(key,) for key in first] if isinstance(first, dict) else []
    keys += [(key, inner) for key, *_ in keys if isinstance(first[key], dict) for inner in first[key]]
    usual = [key for key in keys if key[-1].lower() in IDS]
    return [
        key for key in usual if len(ids := {id_of(each, key) for each in actions}) == len(actions) and None not in ids
    ]


def id_of(action: Any, key: tuple[str, ...]) -> Any:
    """What names an action there: text or a whole number, or None."""
    for part in key:
        action = action.get(part) if isinstance(action, dict) else None
    return action if isinstance(action, str) or _is_whole(action) else None


def outcomes_of(decision: Decision) -> dict[str, float]:
    """Sums of what was observed of a decision: its numbers, by name where they have one."""
    sums: defaultdict[str, float] = defaultdict(float)
    for each in decision.observed:
        value = each.get("v") if isinstance(each, dict) else each
        for name, number in (value if isinstance(value, dict) else {"": value}).items():
            if isinstance(number, int | float):
                sums[f"outcome_{name}" if name else "outcome"] += number
    return dict(sums)


def _schema(counts: Counts, name: tuple[str, ...] | None) -> Any:
    import pyarrow as pa

    label = pa.int64() if counts.whole(name) else pa.string()
    number, text = pa.float64(), pa.string()
    columns = [
        ("decision_id", text), ("timestamp", text), ("action", label), ("reward", number), ("propensity", number),
        ("eligible", pa.list_(label)), ("a", pa.list_(label)), ("p", pa.list_(number)), ("original_reward", number),
        ("model", text), *((name, number) for name in sorted(counts.outcomes)),
    ]  # fmt: skip
    columns += [("sampling_weight", number)] if counts.sampled else []
    columns += [("cluster", text), ("x_slot", number)] if counts.slots else []
    columns += [(f"x_{name}", text if kind is str else number) for name, kind in sorted(counts.kinds.items())]
    return pa.schema(columns)


def _notes(counts: Counts, name: tuple[str, ...] | None) -> tuple[str, ...]:
    named = "their places in c._multi, from 1: the features name none. An item must keep its place for that"
    notes = [f"Actions are named by {named if name is None else '.'.join(name)}.", "The reward is minus _label_cost."]
    if counts.sampled:
        notes.append("Rows were sampled (pdrop): each has the sampling weight 1 / (1 - pdrop).")
    if counts.skipped:
        notes.append(f"{counts.skipped:,} lines say _skipLearn: their action was not shown, and they are no rows.")
    if counts.dangling:
        notes.append(f"{counts.dangling:,} lines are rewards without a decision, and are no rows.")
    return tuple(notes)


def _batches(
    decisions: Iterator[Decision], counts: Counts, name: tuple[str, ...] | None, schema: Any
) -> Iterator[Any]:  # fmt: skip
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    whole = counts.whole(name)
    for decision in decisions:
        rows.append(_row(decision, counts, name, whole))
        if len(rows) == BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _row(decision: Decision, counts: Counts, name: tuple[str, ...] | None, whole: bool) -> dict[str, Any]:
    ids = [at + 1 if name is None else id_of(action, name) for at, action in enumerate(decision.actions)]
    ids = ids if whole else list(map(str, ids))
    state = decision.event.get("VWState")
    row = {
        "decision_id": decision.id or None, "timestamp": decision.event.get("Timestamp"),
        "action": ids[decision.chosen], "reward": None if decision.cost is None else -decision.cost,
        "propensity": decision.propensity, "eligible": [ids[at] for at in decision.order],
        "a": [ids[at] for at in decision.order] if decision.probabilities else None,
        "p": [float(each) for each in decision.probabilities] or None,
        "original_reward": None if decision.original is None else -decision.original,
        "model": state.get("m") if isinstance(state, dict) and isinstance(state.get("m"), str) else None,
        **dict.fromkeys(counts.outcomes, 0.0), **outcomes_of(decision),
    }  # fmt: skip
    if counts.sampled:
        row["sampling_weight"] = 1 / (1 - _dropped(decision.where, decision.event))
    if counts.slots:
        row |= {"cluster": str(decision.event.get("EventId", decision.where)), "x_slot": decision.slot}
    features = filled(counts.kinds, features_of(decision.where, decision.shared))
    return row | {f"x_{name}": value for name, value in features.items()}
