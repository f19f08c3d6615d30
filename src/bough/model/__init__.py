"""The weights and the one forward pass: encoder, adapters, heads, losses."""
