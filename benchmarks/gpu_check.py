"""On a machine with a GPU: the numbers of the CPU, those of a trial alone, bit-equal reruns, and the time of 30 trials.

python benchmarks/gpu_check.py
"""

import time

import numpy as np
import torch

import cael
from cael.embedding.settings import PRESETS, TRAININGS
from cael.experiments.readings import problems

STEPS = 300


def estimators(device, **short):
    """Every published network, by name."""
    for preset in PRESETS:
        stated = TRAININGS.get(preset, cael.Training())
        yield preset, cael.CAELMIPS(preset, training=cael.Training(device=device, optimiser=stated.optimiser,
              learning_rate=stated.learning_rate, **short))  # fmt: skip
    yield "NetworkDM", cael.NetworkDM(cael.NetworkOutcome(training=cael.Training(device=device, **short)))
    yield "AELMIPS", cael.AELMIPS(device=device)
    yield "AELMIPS(offset)", cael.AELMIPS(device=device, offset=True)


def values(estimator, some, seeds):
    return np.array([each.value for each in estimator.solve_many(some, seeds)])


def main() -> None:
    print("torch", torch.__version__, torch.cuda.get_device_name(0))
    few, _ = problems(3)
    short = {"iterations": STEPS}
    here, there = dict(estimators("cuda", **short)), dict(estimators("cpu", **short))
    for name, estimator in here.items():
        beside, again = (values(estimator, few, [0, 1, 2]) for _ in range(2))
        alone = np.concatenate([values(estimator, few[t : t + 1], [t]) for t in range(3)])
        cpu = values(there[name], few, [0, 1, 2])
        print(
            f"{name}, {STEPS} steps: {beside}; from the CPU {np.abs(beside - cpu).max():.1e}, from each alone "
            f"{np.abs(beside - alone).max():.1e}, bit-equal again: {(again == beside).all()}"
        )
    many, truth = problems(30)
    for name, estimator in estimators("cuda"):
        torch.cuda.synchronize()
        start = time.perf_counter()
        found = values(estimator, many, list(range(30)))
        print(f"{name}: 30 trials in {time.perf_counter() - start:.2f} s, mse {np.mean((found - truth) ** 2):.3f}")


if __name__ == "__main__":
    main()
