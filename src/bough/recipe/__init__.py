"""What a person writes: a recipe, read with its lines and checked. No torch."""
