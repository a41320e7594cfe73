"""Floor 3: looks at running threads, its own first of all."""
