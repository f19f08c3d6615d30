"""Further pretraining: an encoder that guesses masked words of the tasks' own texts."""
