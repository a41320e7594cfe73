"""Facts about OpenMP runtimes, and how a binding is written for them: plain values only.

Imports the base modules; `programs`, `planning`, `inspection`, `probe` and `doctor` take their facts from it.
To add an OpenMP runtime: one row in `runtimes`.
"""
