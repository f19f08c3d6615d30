"""Tables of any size made ready: read as a stream, checked, tokenised, kept as plain arrays."""
