"""Learners of one log: what each peer's script shares. Runs in the peer's environment and needs numpy alone.

A log is an .npz file: contexts, actions, rewards, propensities, features of the actions (k, m), n_actions; and the rows
on which the learned policies are valued: test (contexts), q (expected rewards of all actions).
"""

import json
import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")


def main(learners):
    """Print (learner, value, seconds) of all learners as JSON; one that fails is named with its error."""
    data, rows = dict(np.load(sys.argv[1])), []
    for name in sys.argv[2:] or learners:
        start = time.process_time()
        try:
            p = learners[name](data)
        except Exception as error:
            rows.append((name, None, f"{type(error).__name__}: {str(error)[:150]}"))
            continue
        rows.append((name, float((p * data["q"]).sum(axis=1).mean()), time.process_time() - start))
    print(json.dumps(rows))


def one_hot(actions, k):
    """(n, k) of actions (n,)."""
    return np.eye(int(k))[np.asarray(actions, dtype=int)]
