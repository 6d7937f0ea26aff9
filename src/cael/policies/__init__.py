"""Policies: contexts in, probabilities out, through one checked gate."""
