"""Starts the ranks, bound as planned, and supervises them until all have exited.

Imports the base modules, procfs, `machine`, `programs`, `planning` and, for --verify, `inspection`. The
caller passes a `Reporter`, which renders all messages. Start reading at `process_pair` (the two processes),
then `supervisor` (the main loop), `ranks` and `spawn` (a rank), and `loop` (the only place where it sleeps).
`readiness` finds out whether a server is ready.
To add an option of `run`: a field of `run_options.RunOptions`, its use here, and its row in `cli.options`.
"""
