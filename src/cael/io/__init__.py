"""Files and tables in: logs, policies, action tables; dictionaries of obp."""

from typing import TYPE_CHECKING

from cael._lazy import lazily

if TYPE_CHECKING:
    from cael.io._public import *  # noqa: F403
    from cael.io._public import __all__ as __all__
else:
    __getattr__, __dir__ = lazily(__name__)
