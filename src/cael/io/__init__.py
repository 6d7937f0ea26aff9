"""Files and tables in: logs, policies, action tables; dictionaries of obp."""

from typing import TYPE_CHECKING

from cael.common.lazy import lazily

if TYPE_CHECKING:
    from cael.io.names import *  # noqa: F403
    from cael.io.names import __all__ as __all__
else:
    __getattr__, __dir__ = lazily(__name__, "cael.io.names")
