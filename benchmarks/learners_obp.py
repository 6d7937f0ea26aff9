"""obp's learners on one log, in obp's environment (see learners_peer.py).

IPWLearner and QLearner with a linear model and with a random forest, as in obp's examples. IPWLearner takes no negative
rewards: they are centred and cut at 0, which its authors' papers advise, too; and as they are where that is possible.
"""

import numpy as np
from obp.policy import IPWLearner, QLearner
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from learners_peer import main

FOREST = {"n_estimators": 100, "min_samples_leaf": 10, "random_state": 0}


def ipw(data, rewards, base):
    learner = IPWLearner(n_actions=int(data["n_actions"]), base_classifier=base)
    learner.fit(context=data["contexts"], action=data["actions"], reward=rewards, pscore=data["propensities"])
    return learner.predict(context=data["test"])[:, :, 0]


def centred(data):
    return np.maximum(data["rewards"] - data["rewards"].mean(), 0)


def direct(data, base):
    learner = QLearner(n_actions=int(data["n_actions"]), base_model=base)
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
    "obp IPWLearner": lambda data: ipw(data, data["rewards"], LogisticRegression(max_iter=1000)),
    "obp IPWLearner, centred": lambda data: ipw(data, centred(data), LogisticRegression(max_iter=1000)),
    "obp IPWLearner, centred, forest": lambda data: ipw(data, centred(data), RandomForestClassifier(**FOREST)),
    "obp QLearner": lambda data: direct(data, Ridge()),
    "obp QLearner, forest": lambda data: direct(data, RandomForestRegressor(**FOREST)),
    "obp NNPolicyLearner": network,
}

if __name__ == "__main__":
    main(LEARNERS)
