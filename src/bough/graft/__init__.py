"""Several models become one: averaged, or learned from."""
