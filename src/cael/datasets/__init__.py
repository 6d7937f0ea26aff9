"""Real data: fetching apart from parsing."""

from cael.datasets.fetch import FetchError, cache_folder
from cael.datasets.keel import keel
from cael.datasets.obd import OpenBanditLog, open_bandit

__all__ = ["FetchError", "OpenBanditLog", "cache_folder", "keel", "open_bandit"]
