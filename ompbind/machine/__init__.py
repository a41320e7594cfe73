"""What a machine is: cores, caches, NUMA nodes, kinds of cores, and which CPUs may be used, as values.

Imports the base; `machine.sources` reads real, recorded and described machines into these values.
To add a fact about machines: a field of `model.Machine`, and the sources that know it.
"""
