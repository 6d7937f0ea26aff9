"""Learned policies as code for elsewhere: a Python function, or an SQL expression."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from cael.errors import NeedsError, PolicyError
from cael.learning.explained import context_of, mixture
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.rules import KEEP, ScoredRule, TreeRule
from cael.learning.scorers import LinearScores, SameScores

MOST_SCORES = 200
"""Linear scores of more actions are not written as code."""


def as_python(policy: LearnedPolicy, name: str) -> str:
    """A function of a row, a mapping of names of contexts to numbers, that gives the action; None: as the old one."""
    if not name.isidentifier():
        raise PolicyError(f"the name of a function must be a Python identifier; got {name!r}.")
    rule = exportable(policy)
    head = [f"def {name}(row):", f'    """{words(policy)}"""'.replace("\\", "")]
    if isinstance(rule, TreeRule):
        return "\n".join([*head, *python_tree(policy, rule)]) + "\n"
    scores = [python_score(policy, rule, action) for action in range(policy.n_actions)]
    lines = [f"    scores = [{', '.join(scores)}]", f"    actions = {[label(policy, a) for a in range(len(scores))]!r}"]
    return "\n".join([*head, *lines, "    return actions[scores.index(max(scores))]"]) + "\n"


def as_sql(policy: LearnedPolicy, table: str) -> str:
    """A query of the action for every row of a table; NULL: as the old policy."""
    rule = exportable(policy)
    if isinstance(rule, TreeRule):
        case = sql_tree(policy, rule)
    else:
        scores = [sql_score(policy, rule, action) for action in range(policy.n_actions)]
        whens = " ".join(f"WHEN {score} THEN {sql_value(label(policy, a))}" for a, score in enumerate(scores))
        case = f"CASE GREATEST({', '.join(scores)}) {whens} END" if len(scores) > 1 else sql_value(label(policy, 0))
    return f"SELECT *, {case} AS action FROM {sql_name(table)}"


def words(policy: LearnedPolicy) -> str:
    """One line on what the code is, safe in a comment."""
    text = f"{policy.kind}. {mixture(policy)}".strip()
    return "".join(c for c in text if c.isprintable() and c not in "\"'\\")


def exportable(policy: LearnedPolicy) -> Any:
    """The tree, or the scores that name one action for each context."""
    rule: Any = policy.rule
    if isinstance(rule, TreeRule):
        return rule
    greedy = isinstance(rule, ScoredRule) and rule.play.kind == "greedy" and rule.allowed is None
    if greedy and isinstance(rule.scorer, LinearScores | SameScores) and policy.n_actions <= MOST_SCORES:
        return rule.scorer
    raise NeedsError(
        f"{policy!r} cannot be written as code: trees can, and linear scores of at most {MOST_SCORES} actions that "
        "name one action. Learn one with candidates=['tree', 'linear'], single=True (--candidates tree linear "
        "--single), or save it and use cael.read_policy."
    )


def label(policy: LearnedPolicy, action: int) -> Any:
    """The action as it is called in the log."""
    if action == KEEP:
        return None
    return action if policy.labels is None else policy.labels[action]


def key_of(policy: LearnedPolicy, feature: int) -> str:
    return json.dumps(context_of(policy, feature), ensure_ascii=True)


def python_tree(policy: LearnedPolicy, rule: TreeRule, node: int = 0, indent: str = "    ") -> list[str]:
    if rule.feature[node] < 0:
        return [f"{indent}return {label(policy, int(rule.action[node]))!r}"]
    low = python_tree(policy, rule, int(rule.low[node]), indent + "    ")
    high = python_tree(policy, rule, int(rule.high[node]), indent)
    question = f"row[{key_of(policy, int(rule.feature[node]))}] <= {float(rule.threshold[node])!r}"
    return [f"{indent}if {question}:", *low, *high]


def python_score(policy: LearnedPolicy, scorer: Any, action: int) -> str:
    return score_of(policy, scorer, action, lambda feature: f"row[{key_of(policy, feature)}]", repr)


def sql_score(policy: LearnedPolicy, scorer: Any, action: int) -> str:
    return score_of(policy, scorer, action, lambda feature: sql_name(context_of(policy, feature)), sql_number)


def score_of(
    policy: LearnedPolicy, scorer: Any, action: int, name: Callable[[int], str], number: Callable[[float], str]
) -> str:
    """constant + slope * context + ..., in this order."""
    if isinstance(scorer, SameScores):
        return number(float(scorer.values[action]))
    terms = [f"({number(float(slope))} * {name(at)})" for at, slope in enumerate(scorer.slope[action])]
    return " + ".join([f"({number(float(scorer.constant[action]))})", *terms])


def sql_tree(policy: LearnedPolicy, rule: TreeRule, node: int = 0) -> str:
    if rule.feature[node] < 0:
        return sql_value(label(policy, int(rule.action[node])))
    name = sql_name(context_of(policy, int(rule.feature[node])))
    low, high = sql_tree(policy, rule, int(rule.low[node])), sql_tree(policy, rule, int(rule.high[node]))
    return f"CASE WHEN {name} <= {sql_number(float(rule.threshold[node]))} THEN {low} ELSE {high} END"


def sql_number(value: float) -> str:
    """A double, not a decimal."""
    if not math.isfinite(value):
        raise PolicyError(f"a score is {value}, which SQL has no literal for.")
    text = repr(value)
    return f"({text})" if "e" in text else f"({text}e0)"


def sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return repr(value)
    return "'" + str(value).replace("'", "''") + "'"
