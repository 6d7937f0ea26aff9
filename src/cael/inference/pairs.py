"""What the contrast of two estimates is made from: their unbiased estimates in pairs, and its diagnostics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cael.inference.diagnostics import Diagnostics, contrast_floor, of_contrast

if TYPE_CHECKING:
    from cael.inference.estimate import Estimate


def unbiased_pairs(a: Estimate, b: Estimate) -> Iterator[tuple[Estimate, Estimate]]:
    """The unbiased estimates that two know, each with the one of its kind; none where neither knows any. One that knows
    none stands for itself."""
    if len(a.unbiased) == len(b.unbiased):
        return zip(a.unbiased, b.unbiased, strict=True)
    return itertools.product(a.unbiased or (a,), b.unbiased or (b,))


def contrasted(a: Estimate, b: Estimate, contrast: Estimate) -> Diagnostics:
    """The diagnostics of a - b."""
    floors = a.diagnostics.stderr_floor, b.diagnostics.stderr_floor
    floor = contrast_floor((a.stderr, b.stderr, contrast.stderr), floors)
    return replace(of_contrast(a.diagnostics, b.diagnostics), stderr_floor=floor)
