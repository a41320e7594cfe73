"""What other programs load from ompbind by entry points: `vllm` places the workers of vLLM's servers.

Imports the base modules and all rooms that `cli` may import, and `cli`, whose options it reads from variables
and configuration files. The program loads an entry point in all its processes: until the user asks for
ompbind, its module imports only `os`.
To add a program: a module with the function of its entry point, and a line in `pyproject.toml`.
"""
