"""What is run by hand from the repository root; no part of the package."""
