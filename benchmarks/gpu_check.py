"""On a machine with a GPU: the same numbers as on the CPU, bit-equal reruns, and the time of 30 trials at once.

python benchmarks/gpu_check.py
"""

import time

import numpy as np
import torch

import cael
from cael.experiments.readings import problems


def main() -> None:
    print("torch", torch.__version__, torch.cuda.get_device_name(0))
    few, _ = problems(3)
    short = {"iterations": 60}
    for preset in ("constant-posterior", "through-posterior", "offset", "literal"):
        values = {}
        for device in ("cpu", "cuda"):
            estimator = cael.CAELMIPS(preset=preset, training=cael.Training(device=device, **short))
            values[device] = np.array([each.value for each in estimator.solve_many(few, [0, 1, 2])])
        estimator = cael.CAELMIPS(preset=preset, training=cael.Training(device="cuda", **short))
        again = np.array([each.value for each in estimator.solve_many(few, [0, 1, 2])])
        print(
            preset,
            "60 steps: cpu",
            values["cpu"],
            "cuda",
            values["cuda"],
            "bit-equal rerun:",
            (again == values["cuda"]).all(),
        )
    many, truth = problems(30)
    for name, estimator in (
        ("CAELMIPS paper", cael.CAELMIPS(training=cael.Training(device="cuda"))),
        ("CAELMIPS through", cael.CAELMIPS("through-posterior", training=cael.Training(device="cuda"))),
        ("AELMIPS repository", cael.AELMIPS(device="cuda")),
    ):
        torch.cuda.synchronize()
        start = time.perf_counter()
        found = np.array([each.value for each in estimator.solve_many(many, list(range(30)))])
        print(f"{name}: 30 trials in {time.perf_counter() - start:.2f} s, mse {np.mean((found - truth) ** 2):.3f}")


if __name__ == "__main__":
    main()
