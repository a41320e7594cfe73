"""Configuration files and presets on the command line: precedence, trust, `ompbind config`, completion."""

import json
import os

import pytest

from tests.cli.command_lines import call as call_here
from tests.live.conftest import one_line, two_cpus
from tests.live.other_user import NOBODY

USER = ".config/ompbind/ompbind.toml"
SHOW = ("--", "sh", "-c", "echo $A,$B")


@pytest.fixture
def call(ompbind, tmp_path):
    """Run ompbind in a home of its own."""

    def run(*args, **env):
        return ompbind(*args, cwd=tmp_path, env={"HOME": str(tmp_path), **env})

    return run


@pytest.fixture
def show(tmp_path, monkeypatch):
    """The same for verbs that start no process."""
    monkeypatch.chdir(tmp_path)
    return lambda *args, **env: call_here(*args, **{"HOME": str(tmp_path), **env})


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read_options(done):
    """Return (value, name of the highest source) of each option, from `config --format json`."""
    assert done.returncode == 0, done.stderr
    options = json.loads(done.stdout)["options"]
    return {option["name"]: (option["value"], option["sources"][-1]["name"]) for option in options}


def test_every_level_overrides_the_levels_below(show, tmp_path):
    user = write(tmp_path / USER, '[defaults]\nthreads = 1\n[preset.low]\nmemory = "bind"\nthreads = 2\n')
    project = write(tmp_path / "ompbind.toml", '[defaults]\nthreads = 3\nmemory = "interleave"\n')
    low, four = {"OMPBIND_PRESET": "low"}, {"OMPBIND_THREADS": "4"}
    for words, env, value, source, memory in (
        ("", {}, "3", f"{project}:2: defaults.threads", "interleave"),
        ("--preset low", {}, "2", f"{user}:5: preset.low.threads", "bind"),
        ("", low | four, "4", "OMPBIND_THREADS", "bind"), ("-t 5", four, "5", "--threads", "interleave"),
        ("--no-threads", {}, None, "--no-threads", "interleave"), ("--no-config", {}, None, None, "local"),
        (f"--config {user}", {}, "1", f"{user}:2: defaults.threads", "local"),
    ):  # fmt: skip
        options = read_options(show("config", "--format", "json", *words.split(), **env))
        assert (options["threads"], options["memory"][0]) == ((value, source), memory)


@pytest.mark.two_cpus
def test_ranks_get_the_variables_of_a_preset(call, tmp_path):
    text = '[preset.a.env]\nA = "2"\nB = "{rank}"\n[preset.a]\nranks = 2\n[preset.c]\nno-env = true\n'
    write(tmp_path / "ompbind.toml", text)
    assert sorted(call("run", "--preset", "a", *SHOW).stdout.split()) == ["2,0", "2,1"]
    assert call("exec", "--preset", "a", "-n1", *SHOW).stdout == "2,0\n"
    assert "OMPBIND_PRESET: preset 'x' is not defined" in call("run", *SHOW, OMPBIND_PRESET="x").stderr


@pytest.mark.two_cpus
def test_the_defaults_of_a_project_cannot_run_code(call, tmp_path):
    text = '[defaults]\nranks = 2\nenv = ["A=1"]\npreload = "./evil.so"\ntopology = "/a/file"\n'
    path = write(tmp_path / "ompbind.toml", text)
    done = call("run", *SHOW)
    assert done.stdout == ",\n" * 2
    refused = "defaults.env, defaults.preload, defaults.topology have no effect in a project file"
    assert f"warning: {path}: {refused}" in one_line(done.stderr)
    assert call("run", "-q", *SHOW).stderr == ""
    path.write_text('[defaults]\nenv = ["A=1"]\n')
    assert call("run", *SHOW, OMPBIND_CONFIG=str(path)).stdout == "1,\n"


def test_defaults_of_the_user_give_way_to_those_of_a_project(show, tmp_path):
    write(tmp_path / USER, '[defaults]\nstrategy = "spread"\n')
    write(tmp_path / "ompbind.toml", '[defaults]\nranks = 2\nmask = "0|1"\n')
    done = show("run", "-v", "--dry-run", "--topology", "synthetic:pack:1 core:4 pu:1", "--", "x")
    assert done.returncode == 0, done.stderr
    assert "defaults.strategy=spread is not used with" in one_line(done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_of_another_user_are_ignored_or_refused(call, tmp_path):
    path = write(tmp_path / "ompbind.toml", '[defaults]\nranks = 2\n[preset.a.env]\nA = "1"\n')
    os.chown(path, NOBODY, NOBODY)
    owner = f"it belongs to user {NOBODY}"
    for options, started, text in (
        ([], ",\n", f"warning: {path} is ignored: {owner}"),
        (["--config", "ompbind.toml"], "", f"ompbind.toml: {owner}"),
        (["--preset", "a"], "", f"hint: {path} is ignored: {owner}"),
    ):
        done = call("run", *options, *SHOW)
        assert (done.stdout, done.returncode) == (started, 0 if started else 125)
        assert text in one_line(done.stderr)


def test_ranks_of_a_job_that_read_different_files_are_warned(call, tmp_path, start, ompbind):
    first, second = two_cpus()
    write(tmp_path / "one/ompbind.toml", f'[defaults]\nmask = "{first}"\n')
    write(tmp_path / "two/ompbind.toml", f'[defaults]\nmask = "{second}"\n')
    job = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "HOME": str(tmp_path), "OMPBIND_STRATEGY": "all"}
    rank0, rank1 = ({**job, "PMI_RANK": rank, "MPI_LOCALRANKID": rank} for rank in "01")
    command = ("exec", "--run-id", "job", "--", "sh", "-c", "echo up; exec sleep 300")
    live = start(*command, env=rank0, cwd=tmp_path / "one", up=1)
    assert len(json.loads(call("ps", "--format", "json").stdout)["runs"][0]["configuration"]) == 16
    end = ("exec", "--run-id", "job", "--", "true")
    warned = ompbind(*end, env=rank1, cwd=tmp_path / "two").stderr
    assert f"(pid {live.pid}) have read other configuration files" in one_line(warned)
    assert "configuration" not in ompbind(*end, env=rank1, cwd=tmp_path / "one").stderr


def test_presets_are_completed(show, tmp_path):
    write(tmp_path / "ompbind.toml", "[preset.serve]\n[preset.search]\n[preset.other]\n")
    named = write(tmp_path / "x.toml", "[preset.second]\n")
    line = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind run --preset se", "COMP_CWORD": "3"}
    assert show(**line).stdout.split() == ["plain,serve", "plain,search"]
    assert show(**line, OMPBIND_CONFIG=str(named)).stdout == "plain,second\n"
    assert "plain," not in show(**line, OMPBIND_CONFIG="/none.toml").stdout
