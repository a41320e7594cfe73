"""The text of `--mask`, which names CPUs: its grammar and its canonical form.

Imports the base modules and `machine` (for the names of levels); knows no machine's CPUs.
To add a form of item: `mask` reads and writes it.
"""
