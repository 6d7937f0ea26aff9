"""Real data: fetching apart from parsing."""

from cael.datasets.fetch import FetchError, cache_folder
from cael.datasets.keel import keel

__all__ = ["FetchError", "cache_folder", "keel"]
