"""The text by which people name CPUs: its grammar, its canonical form, and corrections of it.

Imports the base and `machine` (for the names of levels); knows nothing of any machine's CPUs.
To add a form of item: `grammar` reads it, `mask` writes it, `autocorrect` corrects texts close to it.
"""
