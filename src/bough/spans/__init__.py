"""Labels inside a text: spans, how files write them, and how a model's numbers become them."""
