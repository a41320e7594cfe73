"""The text of `--mask`, which names CPUs: its grammar, its canonical form, and its CPUs on a machine.

Imports the base modules and `machine`. To add a form of item: `mask` reads and writes it, `resolution` finds
its CPUs.
"""
