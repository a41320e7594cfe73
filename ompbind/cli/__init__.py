"""The command line: one file per verb (`run`, `plan`, …), which turns options into a request and prints.

Imports all other packages; only `__main__` imports it.
To add a verb: one file with its click command, and one row in `main.VERBS`. If a new option has no effect
with another option, give it a rule (`option_rules`).
"""
