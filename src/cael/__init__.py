"""Off-policy evaluation for contextual bandits: what would this new policy have earned, and can I trust the answer?"""

from typing import TYPE_CHECKING

from cael.common.lazy import lazily
from cael.common.version import __version__ as __version__

if TYPE_CHECKING:
    from cael import report as report
    from cael.common.public import *  # noqa: F403
else:
    __getattr__, __dir__ = lazily(__name__, "cael.common.public")
