"""Solvers for rows that do not fit in memory: sums over passes, and sampled batches."""
