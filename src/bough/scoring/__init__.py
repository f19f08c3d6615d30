"""How answers are judged: metrics, and how far a score can be trusted. No torch."""
