"""Variables of other programs: read as planning options (--compat), and replaced in the ranks' environment.

Imports the base modules, `machine`, `openmp`, `programs`, `masks` and `planning`; called by `cli` for
--compat only. `framework` has the records, `settings` reads variables, `reading` fills a request with them.
To add a framework: one file, and one row in `table`.
"""
