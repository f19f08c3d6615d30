"""`bough init`: data files become a recipe."""
