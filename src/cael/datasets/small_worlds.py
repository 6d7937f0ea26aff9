"""Five small examples, each generated from a seed, with the true value of every policy that its tutorial names.

The truth of a policy is its expected reward on the very contexts that were drawn: mean_i sum_a pi(a|x_i) q(x_i, a).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints

START = np.datetime64("2026-06-01T00:00:00", "s")
Rows: TypeAlias = Mapping[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Example:
    """files: columns of each file, by its name. truth: the true value of each policy, by its spec in the command."""

    files: Mapping[str, Rows]
    truth: Mapping[str, float]


def drawn(p: Floats, rng: np.random.Generator) -> Ints:
    """(n,) an action for each row of (n, k) probabilities."""
    places = (rng.random((len(p), 1)) > p.cumsum(axis=1)).sum(axis=1)
    return np.asarray(places.clip(max=p.shape[1] - 1), dtype=np.intp)


def softmax(scores: Floats) -> Floats:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def explored(best: Ints, k: int, epsilon: float) -> Floats:
    """(n, k) of an epsilon-greedy policy."""
    return np.asarray(epsilon / k + (1 - epsilon) * np.eye(k)[best])


def value(q: Floats, p: Floats) -> float:
    return float((p * q).sum(axis=1).mean())


def times(n: int, step: int) -> Array:
    return START + np.arange(n) * np.timedelta64(step, "s")


def revenue(seed: int) -> Example:
    """A shop that shows one of three offers. Few visitors buy, and a few of them spend very much (log-normal, sigma
    1.3)."""
    rng = np.random.default_rng([seed, 1])
    n, offers = 6000, np.array(["none", "ten_percent", "free_shipping"])
    past = np.round(rng.lognormal(3, 1, n), 2)
    days = np.round(rng.exponential(30, n))
    buys = np.clip(0.06 + 0.03 * (past > 20)[:, None] * [0, 1, 0.3] + 0.03 * (days > 30)[:, None] * [0, 0.2, 1], 0, 1)
    mean = np.array([42.0, 37.0, 40.0])
    best = (buys * mean).argmax(axis=1)
    p = 0.7 * softmax(np.column_stack([np.zeros(n), 0.5 * (past > 20), 0.5 * (days > 30)])) + 0.1
    action = drawn(p, rng)
    spend = np.round(mean[action] * rng.lognormal(-(1.3**2) / 2, 1.3, n), 2)
    bought = rng.random(n) < buys[np.arange(n), action]
    rows = {
        "decision_id": np.arange(n), "timestamp": times(n, 90), "x_past_spend": past, "x_days_since": days,
        "action": offers[action], "revenue": np.where(bought, spend, 0.0), "propensity": p[np.arange(n), action],
        "new_offer": offers[best],
    }  # fmt: skip
    q = buys * mean
    truth = {"choice:new_offer": value(q, np.eye(3)[best]), "uniform": float(q.mean()), "logging": value(q, p)}
    return Example({"revenue.parquet": rows}, truth)


def email(seed: int) -> Example:
    """A mailing with three versions, drawn alike for everyone; customers get several. Version b suits new customers."""
    rng = np.random.default_rng([seed, 2])
    n, versions = 8000, np.array(["a", "b", "none"])
    customer = rng.integers(0, 2500, n)
    newcomer, eager = rng.random(2500) < 0.4, rng.normal(0, 0.4, 2500)
    new = newcomer[customer]
    logit = -2.2 + eager[customer][:, None] + np.column_stack([np.full(n, 0.4), 0.3 + 0.7 * new, np.zeros(n)])
    q = 1 / (1 + np.exp(-logit))
    action = drawn(np.full((n, 3), 1 / 3), rng)
    target = np.where(new, 1, 0)
    visited = rng.random(n) < q[np.arange(n), action]
    rows = {
        "timestamp": times(n, 240).astype(str), "user_id": customer, "x_newcomer": new.astype(int),
        "segment": np.where(new, "newcomer", "regular"), "action": versions[action], "visited": visited.astype(int),
        "propensity": np.full(n, 1 / 3).round(9), "by_history": versions[target],
    }  # fmt: skip
    truth = {"choice:by_history": value(q, np.eye(3)[target]), "uniform": float(q.mean())}
    return Example({"email.csv": rows}, truth)


def recommender(seed: int) -> Example:
    """A catalogue of 60 titles of which 12 can be shown on a day; lists of them are in every row."""
    rng = np.random.default_rng([seed, 3])
    n, titles, days = 6000, np.array([f"t{at:02d}" for at in range(60)]), 20
    quality, kind = rng.normal(0, 0.6, 60), rng.integers(0, 3, 60)
    shelves = np.array([rng.choice(60, 12, replace=False) for _ in range(days)])
    day, taste = np.arange(n) * days // n, np.round(rng.dirichlet([0.6] * 3, n), 3)
    shelf = shelves[day]
    fit = 2.2 * np.take_along_axis(taste, kind[shelf], axis=1)
    q = 1 / (1 + np.exp(-(-2.6 + fit + quality[shelf])))
    p, new = 0.2 / 12 + 0.8 * softmax(2 * quality[shelf]), softmax(3 * (fit + 0.7 * quality[shelf]))
    at, rows_ = drawn(p, rng), np.arange(n)
    clicked = rng.random(n) < q[rows_, at]
    rows = {
        "decision_id": [f"r{row}" for row in range(n)], "timestamp": times(n, 288).astype(str),
        "context": [dict(zip(("drama", "comedy", "crime"), map(float, row), strict=True)) for row in taste],
        "action": titles[shelf[rows_, at]], "clicked": clicked.astype(int), "propensity": p[rows_, at],
        "eligible": titles[shelf].tolist(), "new_probabilities": new.tolist(),
    }  # fmt: skip
    spec = "topk:eligible+new_probabilities"
    return Example(
        {"recommender.jsonl": rows}, {spec: value(q, new), "uniform": float(q.mean()), "logging": value(q, p)}
    )


def ads(seed: int) -> Example:
    """An auction's candidates, 5 of 40 ads for each request, as Vowpal Wabbit logs them; and a new model's
    probabilities."""
    rng = np.random.default_rng([seed, 4])
    n, k = 4000, 5
    names, price = [f"ad-{at:02d}" for at in range(40)], np.round(rng.uniform(0.2, 1.0, 40), 2)
    appeal, topic = rng.normal(0, 0.5, 40), rng.integers(0, 4, 40)
    page = rng.integers(0, 4, n)
    ad = np.array([rng.choice(40, k, replace=False) for _ in range(n)])
    click = 1 / (1 + np.exp(-(-2.2 + 1.6 * (topic[ad] == page[:, None]) + appeal[ad])))
    p, new = 0.3 / k + 0.7 * softmax(3 * price[ad]), softmax(6 * price[ad] * click)
    at, rows_ = drawn(p, rng), np.arange(n)
    reward = (rng.random(n) < click[rows_, at]) * price[ad[rows_, at]]
    lines = [
        _decision(int(row), names, ad[row], p[row], int(at[row]), float(reward[row]), int(page[row]), price)
        for row in rows_
    ]
    table = {
        "decision_id": np.repeat([f"ad{row}" for row in range(n)], k), "action": np.array(names)[ad].ravel(),
        "probability": new.ravel(),
    }  # fmt: skip
    q = click * price[ad]
    truth = {"table:new_model.csv": value(q, new), "uniform": float(q.mean()), "topk:a+p": value(q, p)}
    return Example({"ads.dsjson": {"": lines}, "new_model.csv": table}, truth)


def _decision(
    row: int, names: list[str], ad: Ints, p: Floats, at: int, reward: float, page: int, price: Floats
) -> dict[str, Any]:  # fmt: skip
    order = [at, *(place for place in range(len(ad)) if place != at)]
    return {
        "_label_cost": -reward, "_label_probability": float(p[at]), "_label_Action": at + 1, "_labelIndex": at,
        "o": [{"v": reward, "EventId": f"ad{row}"}], "Timestamp": f"{START + np.timedelta64(60 * row, 's')}.0000000Z",
        "Version": "1", "EventId": f"ad{row}", "a": [place + 1 for place in order],
        "c": {
            "Page": {"topic": f"topic{page}"},
            "_multi": [{"_tag": names[each], "Ad": {"price": float(price[each])}} for each in ad],
        },
        "p": [float(p[place]) for place in order], "VWState": {"m": "model-1"}, "_original_label_cost": -reward,
    }  # fmt: skip


def llm_router(seed: int) -> Example:
    """Requests that four language models can answer, at different prices. Long prompts and code need the larger
    ones."""
    rng = np.random.default_rng([seed, 5])
    n, models = 6000, np.array(["small", "medium", "large", "reasoning"])
    tokens, code = np.round(rng.lognormal(6, 1, n)), rng.random(n) < 0.3
    hard = (np.log(tokens) - 6)[:, None] * 0.5 + 1.2 * code[:, None]
    q = 1 / (1 + np.exp(-(np.array([1.2, 1.5, 1.8, 1.9]) - hard * np.array([1.0, 0.7, 0.35, 0.2]))))
    price = np.array([0.1, 0.4, 2.0, 6.0])
    p = explored(np.full(n, 2), 4, 0.4)
    action = drawn(p, rng)
    target = np.where(code | (tokens > 1500), 2, 0)
    score = np.round(np.clip(q[np.arange(n), action] + rng.normal(0, 0.15, n), 0, 1), 3)
    cost = tokens[:, None] / 1000 * price
    rows = {
        "request_id": [f"q{row}" for row in range(n)], "timestamp": times(n, 30).astype(str),
        "context": [{"tokens": float(t), "code": int(c)} for t, c in zip(tokens, code, strict=True)],
        "action": models[action], "quality": score, "cost": np.round(cost[np.arange(n), action], 5),
        "propensity": p[np.arange(n), action], "router": models[target],
    }  # fmt: skip
    clipped = _clipped_mean(q, 0.15)
    truth = {
        "choice:router": value(clipped, np.eye(4)[target]),
        "uniform": float(clipped.mean()),
        "logging": value(clipped, p),
    }
    costs = {"choice:router, --reward cost": value(cost, np.eye(4)[target]), "logging, --reward cost": value(cost, p)}
    return Example({"llm_router.jsonl": rows}, truth | costs)


def _clipped_mean(mean: Floats, sd: float) -> Floats:
    """The mean of a normal number that is clipped to [0, 1]."""
    from scipy.stats import norm

    low, high = (0 - mean) / sd, (1 - mean) / sd
    inside = mean * (norm.cdf(high) - norm.cdf(low)) + sd * (norm.pdf(low) - norm.pdf(high))
    return np.asarray(inside + 1 - norm.cdf(high))


WORLDS: dict[str, Callable[[int], Example]] = {
    "revenue": revenue, "email": email, "recommender": recommender, "ads": ads, "llm-router": llm_router,
}  # fmt: skip
