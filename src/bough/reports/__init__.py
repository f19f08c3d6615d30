"""A comparison as one HTML page."""
