"""Where machines come from: this one, recordings, and descriptions, each read into a `Machine`.

Imports the base and `machine`; the command line and `ompbind.read_machine` call `table.read_machine`.
To add a topology source: one file here, and one row in `table`.
"""
