"""What users get: evaluation, comparison, segments, plan, calibration."""
