"""Floor 5: argv → request, calls in order, one error door."""
