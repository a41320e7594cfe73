"""Whether the threads of running processes are where the plan wants them, and if not, why.

Imports the base, procfs, `openmp`, `programs`, `planning` and `registry`; reads processes and
runs, and changes nothing.
What a plan expects is in `expectation`. To add a finding: a case in `judge`, and its cause in `diagnosis`.
"""
