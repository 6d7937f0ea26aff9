"""Logs larger than memory: read in batches, kept as sums that merge; on threads of this machine or on a cluster."""

from cael.streaming.scanned import ScannedLog, scan

__all__ = ["ScannedLog", "scan"]
