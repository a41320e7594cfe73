"""`ompbind --version -v` prints what a report of a fault needs, and nothing private; it never fails."""

import os
import platform
import pwd
import re
import subprocess
from pathlib import Path

from ompbind import __version__
from ompbind.cli.version_report import READERS, render_version_report
from tests.live.conftest import OMPBIND, RUNTIME_DIR, clean_environment

ROOT = Path(__file__).parent.parent.parent
KEYS = ["ompbind", *READERS]


def run(*args, **env):
    kept = {name: text for name, text in clean_environment(**env).items() if not name.startswith("OPENBLAS_")}
    return subprocess.run([OMPBIND, *args], env=kept, capture_output=True, text=True, timeout=60)


def values(report, key):
    """Return the values with a key; the variable that all tests have is left out."""
    lines = [line for line in report.splitlines() if RUNTIME_DIR not in line]
    return [line.removeprefix(f"{key}: ") for line in lines if line.startswith(f"{key}: ")]


def test_a_report_has_a_line_for_each_subject():
    done = run("--version", "-v")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(dict.fromkeys(line.partition(": ")[0] for line in done.stdout.splitlines())) == KEYS
    assert values(done.stdout, "ompbind") == [__version__]
    assert values(done.stdout, "python")[0].startswith(f"CPython {platform.python_version()}, ")
    assert platform.release() in values(done.stdout, "system")[0]
    assert re.match(r".+, \d+ CPUs?, \d+ cores?, ", values(done.stdout, "machine")[0])
    assert "cannot be read" not in done.stdout
    assert run("-v", "--version").stdout == done.stdout
    assert run("--version").stdout == f"ompbind {__version__}\n"


def test_the_report_in_doctor_md_has_a_line_for_each_subject():
    page = (ROOT / "docs/doctor.md").read_text()
    shown = page.partition("$ ompbind --version -v\n")[2].partition("```")[0].splitlines()
    assert list(dict.fromkeys(line.partition(": ")[0] for line in shown)) == KEYS
    assert shown[0] == f"ompbind: {__version__}"


def test_variables_are_shown_without_secrets():
    env = {
        "OMPBIND_MASK": "0-1", "OMP_NUM_THREADS": "3", "OMPBIND_ENV": "'API_TOKEN=hidden1 hidden2' PORT=1",
        "OMPBIND_API_KEY": "hidden3", "OMPBIND_WRAP": "env SECRET=hidden4 'open", "HF_TOKEN": "hidden5",
        "SLURM_PROCID": "hidden6", "SLURM_LOCALID": "0",
    }  # fmt: skip
    report = run("--version", "-v", **env).stdout
    assert values(report, "variable") == [
        "OMPBIND_API_KEY=***", "OMPBIND_ENV=API_TOKEN=*** PORT=1", "OMPBIND_MASK=0-1", "OMPBIND_WRAP=***",
        "OMP_NUM_THREADS=3",
    ]  # fmt: skip
    assert values(report, "launcher") == ["SLURM_PROCID", "SLURM_LOCALID"]
    assert "hidden" not in report


def test_names_of_the_user_and_the_host_are_hidden(monkeypatch):
    entry = pwd.struct_passwd(("ada", "x", os.getuid(), 0, "", "/home/ada", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setattr(platform, "node", lambda: "node17")
    env = {
        "HOME": "/home/ada",
        "OMPBIND_LOG_DIR": "/home/ada/x:/scratch/ada/logs:/home/adam",
        "OMPBIND_RUN_ID": "node17",
    }
    report = render_version_report(env)
    assert values(report, "variable") == [
        "OMPBIND_LOG_DIR=~/x:/scratch/USER/logs:/home/adam",
        "OMPBIND_RUN_ID=HOST",
    ]
