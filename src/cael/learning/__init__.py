"""Learning a better policy from a log, with a certificate on rows that took no part in it."""
