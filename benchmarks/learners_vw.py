"""Vowpal Wabbit's contextual bandits on one log, in its environment (see learners_peer.py).

--cb_adf with one line per action, contexts shared, contexts crossed with actions (-q sa), costs in [0, 1]. Of three
learning rates and one or five passes, the pair with the best self-normalised value on a quarter of the rows learns from
all of them.
"""

import tempfile
from itertools import product
from pathlib import Path

import numpy as np
from vowpalwabbit import Workspace

from learners_peer import main, one_hot

RATES, PASSES = (0.05, 0.5, 5.0), (1, 5)


def lines_of(data):
    """Per action what every row says of it."""
    features = data["features"]
    return [
        f"|a i{a}" + "".join(f" f{j}:{value:.5g}" for j, value in enumerate(features[a]))
        for a in range(int(data["n_actions"]))
    ]


def shared(x):
    return "shared |s c " + " ".join(f"x{j}:{value:.5g}" for j, value in enumerate(x))


def examples(data, rows):
    """The text of training examples."""
    low, high = data["rewards"].min(), data["rewards"].max()
    cost, lines = (high - data["rewards"]) / (high - low), lines_of(data)
    for row in rows:
        a = int(data["actions"][row])
        labelled = f"0:{cost[row]:.6g}:{data['propensities'][row]:.6g} {lines[a]}"
        yield "\n".join([shared(data["contexts"][row]), *lines[:a], labelled, *lines[a + 1 :]]) + "\n\n"


def trained(data, rows, kind, rate, passes, folder):
    path = Path(folder) / "train.txt"
    path.write_text("".join(examples(data, rows)))
    options = f"--cb_adf --cb_type {kind} -q sa -l {rate} -b 20 --quiet -d {path}"
    if passes > 1:
        options += f" --passes {passes} --holdout_off -c -k --cache_file {folder}/cache"
    return Workspace(options)  # it reads the file at once


def advised(learner, data, contexts):
    """(b,) the action of each row."""
    lines = lines_of(data)
    return np.array([np.argmin(scores(learner, [shared(x), *lines])) for x in contexts])


def scores(learner, text):
    listed = learner.predict("\n".join(text))
    if isinstance(listed[0], tuple):
        return [score for _, score in sorted(listed)]
    return listed


def best(data, kind):
    n = len(data["rewards"])
    order = np.random.default_rng(0).permutation(n)
    held, rest = order[: n // 4], order[n // 4 :]
    worth = {}
    with tempfile.TemporaryDirectory() as folder:
        for rate, passes in product(RATES, PASSES):
            chosen = advised(trained(data, rest, kind, rate, passes, folder), data, data["contexts"][held])
            w = (chosen == data["actions"][held]) / data["propensities"][held]
            worth[rate, passes] = (w @ data["rewards"][held]) / w.sum() if w.sum() else -np.inf
        learner = trained(data, np.arange(n), kind, *max(worth, key=worth.get), folder)
        return one_hot(advised(learner, data, data["test"]), data["n_actions"])


LEARNERS = {f"VW --cb_type {kind}": lambda data, kind=kind: best(data, kind) for kind in ("mtr", "dr", "ips")}

if __name__ == "__main__":
    main(LEARNERS)
