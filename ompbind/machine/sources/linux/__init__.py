"""A Linux machine below a root: sysfs, NUMA nodes, cgroups and kinds of cores.

Imports the base, procfs and `machine`; the root is this machine or a recording, and always an argument.
To read one more fact: a function of the file that is about it, called by `reader`.
"""
