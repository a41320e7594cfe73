"""A Linux machine below a root: CPUs and caches, NUMA nodes, cgroups, kinds of cores.

Imports the base modules, procfs and `machine`. The root, this machine or a recording, is always an argument.
To read one more fact: a function in the file of its subject, called by `reader`.
"""
