"""The command line: one file per verb (`run`, `plan`, …), which turns options into a request and prints.

Imports all other packages; only `__main__` imports it.
To add a verb: one file with its record `VERB`, and its name in `verbs`. To add an option: see `options`.
"""
