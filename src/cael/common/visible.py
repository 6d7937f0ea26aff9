"""Text from data as it may be shown: what a terminal would obey, or a reader would not see, is written out."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters, changes of direction, characters without width, and halves of characters; not tab and newline."""


def visible(text: str) -> str:
    r"""The text with these characters as Python writes them, such as \x1b and \u202e."""
    return HIDDEN.sub(lambda hidden: ascii(hidden[0])[1:-1], text)
