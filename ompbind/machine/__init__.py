"""A machine as values: cores, caches, NUMA nodes, kinds of cores, and the CPUs that may be used.

Imports the base modules. `machine.read` reads real, recorded and described machines into these values.
To add a fact about machines: a field of `model.Machine`, and the sources that read it.
"""
