"""From files, the hub and memory to checked rows, tokens and packed batches."""
