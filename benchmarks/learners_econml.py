"""EconML's policy learners on one log, in EconML's environment (see learners_peer.py).

Forests of 100 trees; the other settings are those of EconML's notebooks: trees of depth 2, leaves of at least 10 rows.
The propensities are estimated: these learners take none.
"""

from econml.policy import DRPolicyForest, DRPolicyTree

from learners_peer import main, one_hot


def learned(data, learner):
    learner.fit(data["rewards"], data["actions"], X=data["contexts"])
    chosen = learner.predict(data["test"]).ravel().astype(int)
    return one_hot(data["actions"].min() + chosen, data["n_actions"])


LEARNERS = {
    "EconML DRPolicyTree": lambda data: learned(
        data, DRPolicyTree(max_depth=2, min_samples_leaf=10, min_impurity_decrease=0.001, random_state=0)
    ),
    "EconML DRPolicyForest": lambda data: learned(
        data, DRPolicyForest(n_estimators=100, max_depth=5, min_samples_leaf=10, random_state=0, n_jobs=1)
    ),
}

if __name__ == "__main__":
    main(LEARNERS)
