"""obp's learners on one log; runs in obp's environment and prints (learner, value, seconds) as JSON."""

import json
import sys
import time
import warnings

import numpy as np
from obp.policy import IPWLearner, QLearner
from sklearn.linear_model import LogisticRegression, Ridge

warnings.simplefilter("ignore")


def ipw(data, rewards):
    learner = IPWLearner(n_actions=int(data["n_actions"]), base_classifier=LogisticRegression(max_iter=1000))
    learner.fit(context=data["contexts"], action=data["actions"], reward=rewards, pscore=data["propensities"])
    return learner.predict(context=data["test"])[:, :, 0]


def direct(data):
    learner = QLearner(n_actions=int(data["n_actions"]), base_model=Ridge())
    learner.fit(context=data["contexts"], action=data["actions"], reward=data["rewards"], pscore=data["propensities"])
    return learner.predict(context=data["test"])[:, :, 0]


def network(data):
    from obp.policy import NNPolicyLearner

    learner = NNPolicyLearner(
        n_actions=int(data["n_actions"]),
        dim_context=data["contexts"].shape[1],
        off_policy_objective="dr",
        random_state=0,
    )
    learner.fit(context=data["contexts"], action=data["actions"], reward=data["rewards"], pscore=data["propensities"])
    return learner.predict(context=data["test"])[:, :, 0]


LEARNERS = {
    "obp IPWLearner": lambda data: ipw(data, data["rewards"]),
    "obp IPWLearner, centred": lambda data: ipw(data, np.maximum(data["rewards"] - data["rewards"].mean(), 0)),
    "obp QLearner": direct,
    "obp NNPolicyLearner": network,
}


def main():
    data, rows = np.load(sys.argv[1]), []
    for name, learn in LEARNERS.items():
        start = time.process_time()
        try:
            p = learn(data)
        except ImportError:  # torch is not part of obp's environment
            continue
        except Exception as error:  # a learner that fails on this log is shown by its name
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        rows.append((name, float((p * data["q"]).sum(axis=1).mean()), time.process_time() - start))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
