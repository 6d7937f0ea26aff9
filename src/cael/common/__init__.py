"""What every room uses: array types, cores, progress, lazy imports, the version."""
