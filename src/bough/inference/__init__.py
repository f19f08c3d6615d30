"""Texts to answers, whatever computes: a model loaded, asked, and asked for whole files."""
