"""Regression with constraints on the errors of groups."""
