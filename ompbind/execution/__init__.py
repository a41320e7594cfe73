"""Starts the ranks, bound as planned, and supervises them until all have exited.

Imports every room before it; what it says goes to the `Reporter` that `cli` hands over.
To add a running option: a field of the options of a run, its consumer here, and its option in `cli`.
"""
