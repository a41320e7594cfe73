"""Machine and request in, plan out: which rank gets which CPUs, places, threads and memory, and why.

Imports the base, `machine` (not its sources), `openmp`, `programs` (records only) and `masks`; reads nothing.
To add a planning option: a field of `request`, the step of `planner` that uses it, and its option in `cli`.
"""
