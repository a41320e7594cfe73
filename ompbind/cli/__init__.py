"""The command line: one file per verb (`run`, `plan`, …), which turns options into a request and prints.

Imports all other rooms but `workers`; only `__main__` imports it. Here are the names of all verbs, and of the
sections of their options. To add a verb: one file with its command `VERB`, and its name in `VERBS`. To add an
option: one row in `options`, or in `OPTIONS` of the only verb that has it; one field in `settings`, or in
`execution.run_options.RunOptions` for the supervisor; and the code that uses it.
"""

VERBS = (
    "run", "exec", "plan", "bench", "topo", "probe", "doctor", "ps", "stop", "inspect", "rebind", "config",
    "completion", "help",
)  # fmt: skip
"""All verbs in the order of the help; the module of a verb has its name and the command `VERB`."""

VERB_MODULES = {"bench": "ompbind.bench.verb"}
"""The modules of verbs that are rooms of their own, above this room: they are only loaded by name."""

LAUNCHING = ("run", "exec")  # the verbs that exit with the code of the command that they start

PLANNING = (*LAUNCHING, "plan", "bench")
"""The verbs that make a plan. Their options can also be given as variables and in configuration files."""

CHOOSING = (*PLANNING, "rebind")  # the verbs that choose CPUs
SEPARATOR, END = ":", "--"  # the words before another group, and before a command
PREFIX = "OMPBIND_"  # the start of the names of all variables that ompbind reads or sets

CPUS = "Choose CPUs"
DEVICES = "Devices"
BINDING = "Bind threads and memory"
RANKS = "Environment of the ranks"
GROUPS = "Groups and readiness"
COMPARING = "Compare placements"
MEASURING = "Measure"
OUTPUT = "Output"
STOPPING = "Stop, check and report"
CONFIGURATION = "Configuration files"
"""The sections of the help; STOPPING has failures, time limits, --verify and --report.

COMPARING and MEASURING have the options of `bench`.
"""
