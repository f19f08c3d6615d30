"""Runs to groups, differences with intervals and tests, a verdict, tables."""
