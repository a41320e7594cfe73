"""The names of all verbs."""

VERBS = (
    "run", "exec", "plan", "bench", "topo", "probe", "doctor", "ps", "inspect", "config", "completion",
    "help",
)  # fmt: skip
"""All verbs in the order of the help; the module of a verb has its name and the command `VERB`."""

LAUNCHING = ("run", "exec")
"""The verbs that exit with the code of the command that they start."""

PLANNING = (*LAUNCHING, "plan", "bench")
"""The verbs that make a plan. Their options can also be given as variables and in configuration files."""
