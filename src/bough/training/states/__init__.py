"""States of frozen parts, computed once and kept."""
