"""One model over HTTP: the app, its limits, its page."""
