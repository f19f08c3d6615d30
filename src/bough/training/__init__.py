"""Whose turn, whose loss, whose gradient, how weights move; one step, and the whole run."""
