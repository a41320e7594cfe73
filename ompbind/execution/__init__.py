"""Starts the ranks, bound as planned, and supervises them until all have exited.

Imports the base, procfs, `machine`, `programs`, `planning` and, for --verify, `inspection`. What it says goes
to the `Reporter` that `cli` hands over. The state of a run is `run_state.Run`: children, shutdown, output,
accounting, verification, each in a module of its own.
To add a running option: a field of `run_options.RunOptions`, its consumer here, and its option in
`cli.run_options`.
"""
