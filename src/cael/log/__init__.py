"""Logs: in memory and in files, rows checked at the door, row keys and folds, the memory budget."""
