"""Compares placements of a command: runs each candidate in many rounds, and draws conclusions from the runs.

Imports rooms up to `execution`, and `doctor.read_kernel`; `cli` makes the candidates from options, `report`
renders the results. `session` is the main loop: it asks `decision` which candidates run next, and
`run_candidate` runs them. Start reading at `records`, which are also the format of results files. To add a
quantity that is recorded for each run: a field of `records.Run`, and the code in `run_candidate` that reads
it.
"""
