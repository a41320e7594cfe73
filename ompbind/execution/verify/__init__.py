"""--verify: samples of the ranks' threads until these are stable, and what follows from them.

Imports procfs, `planning`, `inspection` and `execution`; loaded only when a run is verified.
To check one more fact: sample it in `sampler`, judge it in `inspection.judge`.
"""
