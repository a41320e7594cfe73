"""Floor 3: starts ranks, bound as planned, and stays with them until all have ended."""
