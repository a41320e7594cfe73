"""Variables of other programs: read as planning options (--compat), and replaced in the ranks' environment.

Imports the base modules, `machine`, `masks` and `planning`; called by `cli` for --compat only.
To add a framework: one file, and one row in `table`.
"""
