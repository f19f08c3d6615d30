"""One trunk, many boughs: fine-tune one text encoder for several tasks and serve them from it."""

__version__ = "0.1.0.dev0"
