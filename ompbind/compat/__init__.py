"""Variables of other programs: read as planning options (--compat), and replaced in the ranks' environment.

Imports the base modules, `machine`, `openmp`, `programs`, `masks` and `planning`; called by `cli` and
`workers` for --compat only. `frameworks` has their rows, `reading` fills a request.
To add a framework: one row in `frameworks`.
"""
