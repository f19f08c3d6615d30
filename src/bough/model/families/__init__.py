"""Encoders that are not BERT under another name: their embeddings and layers."""
