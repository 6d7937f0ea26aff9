"""The overlap of a target with a log, from what a pass kept."""

from __future__ import annotations

import numpy as np

from cael.engine.answer import Answer
from cael.engine.columns import Weight
from cael.inference.overlap import MOST_ACTIONS, ActionOverlap, Overlap
from cael.judging.judge import survey_of


def overlap_of(answer: Answer, target: int) -> Overlap | None:
    """Where the weight lies; None without weights."""
    weight = Weight(target)
    if not answer.log.has_propensities or answer.tally(weight).largest == 0:
        return None
    tally, n, survey = answer.tally(weight), answer.n, survey_of(answer, target)
    total, empty = answer.mean(weight) * n, survey.logged == 0
    edges, counts, shares = tally.histogram(total)
    mass = answer.mean_mass(target)
    return Overlap(
        n=n, n_actions=len(survey.logged), effective_rows=answer.effective_size(weight),
        mean_weight=answer.mean(weight), max_weight=tally.largest, zero_share=tally.zeros / n,
        largest_share=tally.largest / total, top_share=tally.top_share(n, total), edges=edges, counts=counts,
        shares=shares,
        actions=tuple(
            ActionOverlap(
                int(a), round(float(survey.counted[a])), None if survey.expected is None else float(survey.expected[a]),
                float(mass[a]),
            )
            for a in np.argsort(-np.round(mass, 12), kind="stable")[:MOST_ACTIONS]
        ),
        never_logged=int(empty.sum()),
        never_logged_mass=None if survey.target is None else float(survey.target[empty].sum()),
    )  # fmt: skip
