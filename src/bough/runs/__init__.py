"""What a run leaves and shows: its directory, predictions, cost, card, console, trackers."""
