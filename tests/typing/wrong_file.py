"""What type checkers must refuse: each line with an error is counted."""

import cael

log = cael.testing.example()[0]
cael.evaluate(log, object())
cael.SNIPS().estimate(log, None)
cael.compare(log, {"new": object()})
