"""Topology sources: this machine, recordings and descriptions, each read into a `Machine`.

Imports the base modules and `machine`. The command line and Python programs call `reading.read_machine`.
To add a topology source: one file here, and one row in `sources`.
"""
