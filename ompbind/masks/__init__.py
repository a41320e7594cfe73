"""The text of `--mask`, which names CPUs: its grammar, its canonical form, and its correction.

Imports the base modules and `machine` (for the names of levels); knows no machine's CPUs.
To add a form of item: `grammar` reads it, `canonical` writes it, `autocorrect` corrects text close to it.
"""
