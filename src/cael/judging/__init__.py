"""Whether a number can be trusted: thresholds, checks, verdict, survey, audit."""
