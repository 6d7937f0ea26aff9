"""Real data: fetching apart from parsing."""

from cael.datasets.fetch import FetchError, cache_folder
from cael.datasets.keel import keel
from cael.datasets.movielens import MovieLens, movielens
from cael.datasets.obd import OpenBanditLog, open_bandit
from cael.datasets.trials import Trial, actg175, rand_hie

__all__ = [
    "FetchError",
    "MovieLens",
    "OpenBanditLog",
    "Trial",
    "actg175",
    "cache_folder",
    "keel",
    "movielens",
    "open_bandit",
    "rand_hie",
]
