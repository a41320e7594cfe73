"""Floor 2: reads the world under a given root into values."""
