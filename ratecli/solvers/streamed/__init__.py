"""Solvers for rows that are in no memory: sums over passes, and batches from anywhere."""
