"""In which numbers a model answers: layers in C, and what int8 costs its scores."""
