"""Decisions of a contextual bandit as Vowpal Wabbit logs them, with the truth of every policy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("hot", "cold", "ice", "latte")
EPSILON = 0.4


@dataclass(frozen=True)
class Coffee:
    """lines: of the file. uniform: the true value of drawing one of the eligible actions. best: of the best of them."""

    lines: tuple[dict[str, Any], ...]
    uniform: float
    best: float

    def write(self, path: Path) -> Path:
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        return path


def coffee(rows: int = 2000, seed: int = 0) -> Coffee:
    """Three of four drinks are on the menu; mornings like hot ones. The logger is epsilon-greedy on a guess."""
    rng = np.random.default_rng(seed)
    lines, uniform, best = [], 0.0, 0.0
    for row in range(rows):
        morning = rng.random() < 0.5
        chance = np.array([0.6, 0.2, 0.1, 0.5] if morning else [0.2, 0.4, 0.5, 0.3])
        menu = rng.permutation(4)[:3]
        p = np.full(3, EPSILON / 3)
        p[int(np.argmin(menu))] += 1 - EPSILON
        chosen = int(rng.choice(3, p=p))
        reward = float(rng.random() < chance[menu[chosen]])
        uniform, best = uniform + chance[menu].mean() / rows, best + chance[menu].max() / rows
        lines.append(_line(row, morning, [NAMES[at] for at in menu], p, chosen, reward))
    return Coffee(tuple(lines), uniform, best)


def _line(row: int, morning: bool, menu: list[str], p: Any, chosen: int, reward: float) -> dict[str, Any]:
    order = [chosen, *(at for at in range(3) if at != chosen)]
    return {
        "_label_cost": -reward, "_label_probability": float(p[chosen]), "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "o": [{"v": reward, "EventId": f"e{row}", "ActionTaken": False}],
        "Timestamp":
            f"2026-03-{1 + row // 86400 % 28:02d}T{row // 3600 % 24:02d}:{row // 60 % 60:02d}:{row % 60:02d}.1230000Z",
        "Version": "1", "EventId": f"e{row}", "a": [at + 1 for at in order],
        "c": {
            "User": {"time": "morning" if morning else "evening", "visits": row % 7},
            "_multi": [{"_tag": name, "i": {"id": name}, "Drink": {name: 1}} for name in menu],
        },
        "p": [float(p[at]) for at in order], "VWState": {"m": "model-1"}, "_original_label_cost": -reward,
    }  # fmt: skip
