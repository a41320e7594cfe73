"""No output and no file of ompbind has a secret value, whatever option, variable or command it is in."""

import os
import shlex
from pathlib import Path

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import wait_until

CANARY = "canary1"
OPTIONS = (
    "--env", f"API_TOKEN={CANARY}", "--env", f"DB_URL=http://u:{CANARY}@h/", "--env", f"AUTH=Bearer {CANARY}",
    "--env", f"PGPASSWORD={CANARY}", "--env-file", "secret.env", "--wrap", f"env SECRET={CANARY} nice",
)  # fmt: skip
COMMAND = ("sh", "-c", "exit 3", "--api-key", CANARY, f"--password={CANARY}", f"HF_TOKEN={CANARY}")
URL = ("--ready", f"http://user:{CANARY}@127.0.0.1:1/")
EXEC = ("--ready", f"exec:false -H 'Authorization: Bearer {CANARY}'")
TRUE = ("--", "true")


def make_groups(ready):
    wait = ("--ready-timeout", "0.3", "--", "sh", "-c", "sleep 60", "--api-key", CANARY)
    return ("--name", "server", *OPTIONS, *ready, *wait, ":", "--name", "load", *TRUE)


LINES = {
    "plan": ("plan", "-v", *OPTIONS, "--", *COMMAND),
    "dry run": ("run", "--dry-run", "-v", *OPTIONS, "--", *COMMAND),
    "a failed run": ("run", "-v", "--report", "run.json", *OPTIONS, "--", *COMMAND),
    "no command": ("run", "-v", "--report", "run.json", *OPTIONS, "--", "./none", "--api-key", CANARY),
    "exec": ("exec", "--dry-run", "-v", "--local-rank", "0", "--local-size", "1", *OPTIONS, "--", *COMMAND),
    "groups": ("run", "--dry-run", "-v", *make_groups(EXEC)),
    "not ready: a command": ("run", "-v", "--grace", "0.2", "--report", "run.json", *make_groups(EXEC)),
    "not ready: a URL": ("run", "-v", "--grace", "0.2", "--report", "run.json", *make_groups(URL)),
    "no URL": ("run", *make_groups(("--ready", f"http://user:{CANARY}@[x/"))),
    "an open quote in --ready": ("run", *make_groups(("--ready", f'exec:curl -H "Bearer {CANARY}'))),
    "a wrong expression": ("run", *make_groups(("--ready", f"text:API_TOKEN={CANARY}("))),
    "an unknown placeholder": ("run", "--env", f"API_TOKEN={CANARY}{{nothing}}", *TRUE),
    "a wrong line": ("run", "--env-file", "wrong.env", *TRUE),
    "a filled command": ("run", "--fill", "--", "true", f"--api-key={CANARY}{{rank-5}}"),
    "an assignment": ("run", f"API_TOKEN={CANARY}", "true"),
    "a wrong option": ("run", "--rnaks", "2", *OPTIONS, *TRUE),
    "doctor": ("doctor", "--format", "json", "--", "env", f"SECRET={CANARY}", "true", "--api-key", CANARY),
    "config": ("config",),
    "bench": ("bench", "-v", "--max-rounds", "1", "--results", "r", *OPTIONS, "--", "true", *COMMAND[3:]),
    "bench of failures": ("bench", "--max-rounds", "1", "--export", "json", *OPTIONS, "--", *COMMAND),
    "bench of groups": ("bench", "--max-rounds", "1", "--grace", "0.2", "--until", "load", *make_groups(URL)),
    "bench, preset": ("bench", "--max-rounds", "1", "--vary", f"env=A_KEY={CANARY},A_KEY={CANARY}2", *TRUE),
}  # fmt: skip


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A working directory whose files and variables have secret values too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    Path("secret.env").write_text(f"DB_PASSWORD={CANARY}\n")
    Path("wrong.env").write_text(f"DB_PASSWORD={CANARY} {CANARY}{{nothing}}\n")
    config = f'[defaults]\nenv = {{A_KEY = "{CANARY}"}}\nwrap = "env SECRET={CANARY} nice"\n'
    Path("ompbind.toml").write_text(config)
    return tmp_path


def find_leaks(claims, *texts):
    """Return all lines with a secret value: of the texts, and of all files that ompbind has written."""
    given = {"secret.env", "wrong.env", "ompbind.toml"}
    written = (path for place in (Path(), Path(claims)) for path in place.rglob("*") if path.is_file())
    texts += tuple(path.read_text() for path in written if path.name not in given)
    return [line for text in texts for line in text.splitlines() if CANARY in line]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.usefixtures("directory")
def test_secret_values_are_masked(ompbind, claims, name):
    words = LINES[name]
    done = (call if "--dry-run" in words or words[0] in ("plan", "config") else ompbind)(*words)
    assert "Traceback" not in done.stderr
    assert not find_leaks(claims, done.stdout, done.stderr), shlex.join(words)


def test_ranks_and_plans_for_other_programs_have_secret_values(ompbind):
    options = ("--env", f"HF_TOKEN={CANARY}")
    assert ompbind("run", *options, "--", "sh", "-c", "echo $HF_TOKEN").stdout == f"{CANARY}\n"
    for words in ("json", "env --rank 0", "sh --rank 0"):
        assert CANARY in call("plan", *options, "--format", *words.split()).stdout, words


@pytest.mark.usefixtures("directory")
def test_secret_values_of_a_live_run_are_masked(ompbind, start, claims):
    wait = ("sh", "-c", f"HF_TOKEN={CANARY}; echo up; sleep 60", *COMMAND[3:])
    process = start("run", "--run-id", "live", "--share", *OPTIONS, "--", *wait, up=1)
    verbs = (("ps",), ("ps", "--format", "json"), ("inspect", "live", "-v"), ("inspect", "--format", "json"))
    for words in (*verbs, ("run", "--exclusive", *TRUE), ("doctor",)):
        done = ompbind(*words)
        assert not find_leaks(claims, done.stdout, done.stderr), words
    assert os.listdir(claims)
    done = ompbind("stop", "live")
    _, errors = process.communicate(timeout=20)
    assert not find_leaks(claims, done.stdout, done.stderr, errors)
    wait_until(lambda: not os.listdir(claims), "the claim is removed")
