"""Experiments that make the tables of the documentation."""
