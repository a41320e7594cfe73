"""Check a zipapp of ompbind with the Python that runs this script: each verb once, without other packages.

    python3 tests/packaging/check_zipapp.py dist/ompbind.pyz

Prints a line for each check; exits with 1 if a check failed. Needs only Python's standard library and `sh`.
So the script also runs in a container, or another root directory, that has only Python.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MACHINE = "synthetic:pack:2 numa:1 core:4 pu:2"
SEEN_BY_RANK = (
    "import os, sys; print(type(sys.meta_path[0]).__name__, os.environ['PYTHONPATH'].endswith('shims'))"
)

TWO = ["--vary", "bind=rank,none"]
MEASURED = ["--max-rounds", "20", "--metric", "took ([0-9])"]
FASTER_WHEN_BOUND = ["--", "sh", "-c", "[ $OMP_PROC_BIND = true ]; echo took $((1 + $?))"]

CHECKS = {
    "version": (["--version"], r"^ompbind \d+\.\d+"),
    "version and installation": (["--version", "-v"], r"^installation: one file, .*omp bind$"),
    "help": (["--help"], r"^Usage: ompbind \[OPTIONS\]"),
    "run": (["run", "-n", "2", "--share", "--", "echo", "hi"], r"^hi\nhi$"),
    "run in another directory": (["run", "--chdir", "/", "--output", "tag", "-v", "--", "pwd"], r"^\[0\] /$"),
    "run verified": (["run", "-v", "--verify", "--report", "run.json", "--", "true"], r"ompbind: "),
    "run with log files": (["run", "--log-dir", "logs", "--", "echo", "hi"], r""),
    "run again": (["run", "--on-failure", "restart:1", "--", "sh", "-c", "exit 7"], r"exit|7"),
    "freeze-threads": (
        ["run", "--freeze-threads", "--", sys.executable, "-c", SEEN_BY_RANK],
        r"^TorchFinder True$",
    ),
    "exec": (["exec", "--", "echo", "hi"], r"^hi$"),
    "plan": (["plan", "-n", "2", "--topology", MACHINE], r"^   1        4      4  1 "),
    "plan as JSON": (["plan", "--format", "json", "--topology", MACHINE], r'"ompbind-plan/1"'),
    "plan as a picture": (["plan", "--format", "picture", "--topology", MACHINE], r"^. package 0 "),
    "plan for a sample": (["plan", "--topology", "sample:epyc-2p"], r"^x86_64, 384 CPUs"),
    "wrong mask": (["plan", "-m", "0-99", "--topology", MACHINE], r"^ompbind: error: CPUs 16-99 "),
    "wrong option": (["plan", "--nonsense"], r"^ompbind: error: .*--nonsense"),
    "topo": (["topo"], r"^live: .* CPU"),
    "inspect": (["inspect", str(os.getpid())], r"^process|^1 process|affinity mask"),
    "probe": (["probe"], r"^this process \(pid|no OpenMP runtime"),
    "doctor": (["doctor", "--", sys.executable, "-c", "pass"], r"^CPUs "),
    "bench, saved as a preset": (
        ["bench", *TWO, *MEASURED, "--results", "b.jsonl", "--save-preset", "best", *FASTER_WHEN_BOUND],
        r"default is saved as preset best",
    ),
    "bench, shown again": (["bench", "--show", "b.jsonl"], r"^recommended: default"),
    "preset": (["plan", "--preset", "best", "--topology", MACHINE], r"^1 rank"),
    "ps": (["ps"], r"runs"),
    "config": (["config"], r"^option .* source"),
    "completion": (["completion", "bash"], r"^complete .* ompbind"),
}
"""Words of ompbind, and a pattern of the output; in this order, because some read results of earlier ones."""

FAILING = {"run again": 7, "wrong mask": 2, "wrong option": 2}
"""Exit codes that are not 0."""

ON_TERMINALS = {
    "progress on a terminal": (
        ["bench", *TWO, "--max-rounds", "2", "--", "true"],
        r"choice \d/",
        "",
    ),
    "live view on a terminal": (["inspect", str(os.getpid()), "--watch"], r"CPU time|thread", "q"),
}
"""Words of ompbind, what must be shown, and the keys to press then."""


def make_environment(directory):
    """Return the few variables that ompbind needs here; HOME is not among them."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    own = {"OMPBIND_RUNTIME_DIR": f"{directory}/runtime", "XDG_CONFIG_HOME": f"{directory}/config"}
    return {**kept, **own, "LC_ALL": "C.UTF-8", "TERM": "xterm"}


class Sandbox:
    """A directory with a copy of the zipapp whose name has spaces, and an empty directory to work in."""

    def __init__(self, zipapp, directory):
        self.work = Path(directory) / "work"
        self.work.mkdir()
        copy = Path(directory) / "omp bind"
        shutil.copyfile(zipapp, copy)
        copy.chmod(0o444)
        self.start = [sys.executable, "-I", "-S", "../omp bind"]
        self.env = make_environment(directory)
        Path(self.env["OMPBIND_RUNTIME_DIR"]).mkdir(mode=0o700)

    def run(self, words):
        """Run ompbind and return (exit code, output)."""
        done = subprocess.run(
            [*self.start, *words], cwd=self.work, env=self.env, timeout=120, encoding="utf-8", check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def run_on_terminal(self, words, pattern, keys):
        """Run ompbind on a terminal, press keys when a pattern is shown, and return (exit code, output)."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.work)
            os.execve(sys.executable, [*self.start, *words], self.env)
        shown = ""
        while data := read_terminal(terminal):
            shown += data
            if keys and re.search(pattern, shown):
                os.write(terminal, keys.encode())
                keys = ""
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def read_terminal(terminal):
    """Return what a program has written to a terminal since the last call, "" when the program has exited."""
    if not select.select([terminal], [], [], 60)[0]:
        raise AssertionError("nothing was written to the terminal for 60 seconds")
    try:
        return os.read(terminal, 1 << 16).decode(errors="replace")
    except OSError:  # no process has the terminal any more
        return ""


def check(sandbox, name):
    """Run a check; raises AssertionError if it fails."""
    if name in ON_TERMINALS:
        words, pattern, keys = ON_TERMINALS[name]
        code, output = sandbox.run_on_terminal(words, pattern, keys)
    else:
        words, pattern = CHECKS[name]
        code, output = sandbox.run(words)
    assert "Traceback" not in output, output
    assert code == FAILING.get(name, 0), f"exit code {code}: {output}"
    assert re.search(pattern, output, re.MULTILINE), f"no {pattern!r} in {output}"


NAMES = [*CHECKS, *ON_TERMINALS]


def main():
    """Run all checks on the zipapp that the command line names."""
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        sandbox = Sandbox(sys.argv[1], directory)
        for name in NAMES:
            try:
                check(sandbox, name)
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}")
            else:
                print(f"ok      {name}")
    version = "{}.{}.{}".format(*sys.version_info)
    print(f"{len(NAMES) - failed} of {len(NAMES)} checks passed with Python {version}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
