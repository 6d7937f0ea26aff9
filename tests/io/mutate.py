"""Reads damaged copies of a log; run in a process of its own, which a reader that trusts a file would crash."""

import sys
from pathlib import Path

import numpy as np

import cael


def main(path: str, seed: str, times: str) -> None:
    good, rng = Path(path).read_bytes(), np.random.default_rng(int(seed))
    damaged = Path(path).with_name(f"damaged{Path(path).suffix}")
    found = {"read": 0, "refused": 0}
    for _ in range(int(times)):
        content = bytearray(good)
        for _ in range(rng.integers(1, 6)):
            content[rng.integers(0, len(content))] = rng.integers(0, 256)
        damaged.write_bytes(bytes(content[: rng.integers(1, len(content))] if rng.random() < 0.2 else content))
        try:
            table = cael.io.open_log(damaged)
            for spec in ("topk:top+chance,rest=uniform", "dense:pi", "choice:best"):
                table.policy(spec)
            found["read"] += 1
        except cael.CaelError:
            found["refused"] += 1
    print(found["read"] + found["refused"], found["refused"])


if __name__ == "__main__":
    main(*sys.argv[1:])
