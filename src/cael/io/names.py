"""The public names of `cael.io`, and where they come from."""

from cael.io.databases import Query
from cael.io.joined import Joined
from cael.io.numpy_files import load_log, load_policy, save_log
from cael.io.obp import from_obp
from cael.io.roles import Columns
from cael.io.specs import PolicySpec
from cael.io.table import LogTable, open_log, read

__all__ = [
    "Columns",
    "Joined",
    "LogTable",
    "PolicySpec",
    "Query",
    "from_obp",
    "load_log",
    "load_policy",
    "open_log",
    "read",
    "save_log",
]
