"""Advice: what to do about cells that are often written so, where leaving their rows out would be wrong."""

from __future__ import annotations

import re

PLAIN = "Write plain numbers, such as 1234.5"
LARGEST_ONES = "leaving these rows out would leave out the largest amounts"
CURRENCY = "([$\u00a3\u20ac\u00a5]|[a-z]{3})"
ALL_ACTIONS = (
    "It holds something of every action: write one column for each, and name them as the logging policy where they are "
    "its probabilities (logging='dense:p_*', --logging 'dense:p_*')."
)
NOT_A_NUMBER = (
    (r"(y|n|yes|no|on|off)", "Write 1 for yes and 0 for no."),
    (r"-?[\d.]+ ?%", "Take the percent sign off and divide by 100."),
    (r"\{.*", ALL_ACTIONS),
    (r"-?\d+,(\d{1,2}|\d{4,})", "Write a decimal point in place of the comma."),
    (r"[^\d\s]{0,3} ?-?\d{1,3}([,' ]\d{3})+(\.\d+)?", f"{PLAIN}, without separators: {LARGEST_ONES}."),
    (rf"{CURRENCY} ?-?[\d.,]+|-?[\d.,]+ ?{CURRENCY}", f"{PLAIN}, without the currency."),
)  # fmt: skip
"""Patterns of a whole cell, in small letters, and what to do."""
NO_REWARD = (
    "Where no reward means that nothing was earned, write 0: leaving these rows out would leave out those without a "
    "reward."
)
SEVERAL = (
    "Where one decision has several rows, such as the positions of a page, they are a cluster and it is no id: "
    "cluster={0!r} (--cluster {0})."
)


def advice_of(what: str, example: str) -> str:
    """What to do about a cell, "" where nothing is known. what: is wrong. example: a cell."""
    if what != "is not a number":
        return ""
    cell = example.strip().strip("'\"").lower()
    return next((advice for pattern, advice in NOT_A_NUMBER if re.fullmatch(pattern, cell, re.DOTALL)), "")
