"""The generator of the demo's data: a small grammar, its sources, what each task makes of them."""
