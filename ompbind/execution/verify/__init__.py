"""`--verify`: samples the threads of all ranks for the whole run, and compares them with the plan.

Imports procfs, `planning`, `inspection` and `execution`; loaded only when a run is verified.
To check one more property: read it in `sampler`, compare it in `inspection.judge`.
"""
