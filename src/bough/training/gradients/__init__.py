"""The tasks' gradients become one, where they share weights."""
