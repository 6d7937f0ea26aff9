"""CAEL: a sparse network that grows, codes with exact weights, and the choice of the bandwidth."""
