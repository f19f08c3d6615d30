"""What labelled rows judge, and how that is shown."""
