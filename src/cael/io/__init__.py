"""Files in: logs and policies from numpy files."""

from cael.io.numpy_files import load_log, load_policy, save_log

__all__ = ["load_log", "load_policy", "save_log"]
