"""How the example was made: a news site that shows one article on top, and the exact value of any policy on it.

python -m cael.datasets.news_world FOLDER      # writes news.parquet and articles.csv again
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats

SECTIONS = ("politics", "sport", "culture", "science")
ROWS, USERS, ARTICLES, DAYS = 6000, 1400, 24, 14
EXPLORATION = 0.15
"""Share of the impressions for which the logging policy draws an article uniformly."""


@final
@dataclass(frozen=True, eq=False)
class News:
    """The site. interests: (n, 4). q: (n, 24) probability of a click. logging, new: (n, 24) the two policies."""

    columns: dict[str, Any]
    interests: Floats
    q: Floats
    logging: Floats
    new: Floats
    section: Array
    minutes: Floats
    fresh: Floats

    def value(self, policy: Floats) -> float:
        """The exact value of a policy (n, 24) on these impressions."""
        return float((policy * self.q).sum(axis=1).mean())


def generate(seed: int = 2026) -> News:
    """Readers with interests, articles with a section and a quality; clicks depend on both, and on the hour."""
    rng = np.random.default_rng(seed)
    section = np.arange(ARTICLES) % len(SECTIONS)
    quality = np.round(rng.normal(0, 0.5, ARTICLES), 3)
    minutes, fresh = np.round(rng.uniform(1, 9, ARTICLES), 1), np.round(rng.exponential(20, ARTICLES), 1)
    taste = rng.dirichlet(np.full(len(SECTIONS), 0.7), USERS)
    activity = rng.pareto(4.0, USERS) + 0.3
    user = rng.choice(USERS, ROWS, p=activity / activity.sum())
    interests = np.round(0.9 * taste[user] + 0.1 * rng.dirichlet(np.ones(len(SECTIONS)), ROWS), 3)
    day = rng.integers(0, DAYS, ROWS)
    hour = np.round(rng.normal(14, 5, ROWS)).astype(int) % 24
    device = rng.choice(["desktop", "mobile", "tablet"], ROWS, p=[0.35, 0.55, 0.1])
    country = rng.choice(["be", "de", "fr", "nl"], USERS, p=[0.2, 0.3, 0.2, 0.3])[user]
    likes = interests[:, section]
    mobile = (device == "mobile")[:, None]
    logit = -3.2 + 3.0 * likes + 0.8 * quality - 0.08 * minutes * mobile - 0.01 * fresh
    logit = logit + 0.3 * ((hour > 17) & (hour < 23))[:, None]
    q = 1 / (1 + np.exp(-logit))
    popular = 1.5 * quality - 0.02 * fresh + 0.8 * likes
    logging = EXPLORATION / ARTICLES + (1 - EXPLORATION) * _softmax(popular / 0.5)
    article = (rng.random((ROWS, 1)) > logging.cumsum(axis=1)).sum(axis=1).clip(max=ARTICLES - 1)
    clicked = rng.random(ROWS) < q[np.arange(ROWS), article]
    new, top, chance = _new_policy(likes, quality, rng)
    start = np.datetime64("2026-03-02T00:00:00", "s")
    seconds = day * 86400 + hour * 3600 + rng.integers(0, 3600, ROWS)
    order = np.argsort(seconds, kind="stable")
    names = np.array([name_of(article) for article in range(ARTICLES)])
    columns = {
        "decision_id": np.array([f"n{row:05d}" for row in range(ROWS)]),
        "timestamp": (start + seconds[order]).astype("datetime64[s]"),
        "user_id": np.array([f"u{number:04d}" for number in user[order]]),
        "device": device[order],
        "country": country[order],
        **{f"x_{name}": interests[order, at] for at, name in enumerate(SECTIONS)},
        "x_hour": hour[order].astype(float),
        "action": names[article[order]],
        "clicked": clicked[order].astype(np.int8),
        "propensity": np.round(logging[np.arange(ROWS), article][order], 6),
        "new_articles": names[top[order]].tolist(),
        "new_probabilities": chance[order].tolist(),
        "most_liked": names[likes.argmax(axis=1)[order]],
    }
    return News(columns, interests[order], q[order], logging[order], new[order], section, minutes, fresh)


def name_of(article: int) -> str:
    return f"{SECTIONS[article % len(SECTIONS)]}-{article // len(SECTIONS) + 1}"


def _softmax(logits: Floats) -> Floats:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _new_policy(likes: Floats, quality: Floats, rng: np.random.Generator) -> tuple[Floats, Array, Floats]:
    """A recommender trained on something like the truth: its five best articles, with probabilities, and the table."""
    scores = 2.5 * likes + 0.6 * quality + rng.normal(0, 0.2, likes.shape)
    top = np.argsort(-scores, axis=1)[:, :5]
    chance = np.round(_softmax(np.take_along_axis(scores, top, axis=1) / 0.4), 3)
    chance[:, 0] += 1 - chance.sum(axis=1)
    chance = np.round(chance, 3)
    table = np.zeros(likes.shape)
    np.put_along_axis(table, top, chance, axis=1)
    return table, top, chance


def write(folder: Path) -> None:
    """news.parquet and articles.csv."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    news = generate()
    pq.write_table(pa.table(news.columns), folder / "news.parquet", compression="zstd", use_dictionary=True)
    rows = [f"{name_of(at)},{SECTIONS[news.section[at]]},{news.minutes[at]},{news.fresh[at]}" for at in range(ARTICLES)]
    text = "\n".join(["action,section,minutes,hours_old", *rows]) + "\n"
    (folder / "articles.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
