"""Several commands in one command line or in a configuration file: who reads which words, and errors."""

import json
import shlex

import pytest

from ompbind.cli.groups import split_groups
from tests.cli.command_lines import call
from tests.live.conftest import one_line

MACHINE = ["--topology", "synthetic:pack:2 core:8 pu:1"]


@pytest.mark.parametrize(("words", "groups"), [
    ("./a : -n 4 --name b -- ./b", ["./a", "-n 4 --name b -- ./b"]),
    ("./a : -n 4 -- ./b : --name c -- ./c -- d", ["./a", "-n 4 -- ./b", "--name c -- ./c -- d"]),
    ("tr : ,", ["tr : ,"]),
    ("./a : -n 4 ./b", ["./a : -n 4 ./b"]),  # no "--"
    ("./a : b -- ./b", ["./a : b -- ./b"]),  # no option
    ("./a : -- ./b", ["./a : -- ./b"]),
    ("./a : : -n 1 -- ./b", ["./a :", "-n 1 -- ./b"]),
    ("./a :", ["./a :"]), (":", [":"]),
    ("./a : --env A=: -- ./b : x", ["./a", "--env A=: -- ./b : x"]),
])  # fmt: skip
def test_a_colon_begins_a_group_only_before_options_and_a_command(words, groups):
    assert split_groups(words.split()) == [group.split() for group in groups]


@pytest.mark.parametrize(("options", "command"), [
    ("", "mpirun -n 1 ./a : -n 1 -- ./b"), ("", "env srun ./a : -n 1 -- ./b"), ("", "awk -F : -v x=1 f"),
    ("", "tr : -x -- f"), ("--no-name", "awk -F : -v x=1 -- f"), ("--name a", "mpirun -n 1 ./a : -n 1 ./b"),
])  # fmt: skip
def test_a_colon_belongs_to_the_command_if_it_begins_no_group(options, command):
    done = call("run", "--dry-run", *MACHINE, *options.split(), "--", *command.split())
    assert f": {command}\n" in done.stdout, done.stderr


@pytest.mark.parametrize(("line", "message"), [
    ("--name a -- ./a : -n 1 --name b ./b", "':' and -n are words of the command ./a, and begin no group"),
    ("--name a -- ./a : -n1 --name b ./b : --name c -- ./c", "words of the command ./b, and begin no group"),
    ("-n 1 -- ./a : --env A=: --name b -- ./b", "':' and --env are words of the command ./a, and begin no"),
    ("./a : -n 1 -- ./b", "':' and -n are words of the command ./a, and begin no group hint: write, or use"),
    ("--name a -- true : -n 2 -- true", "the group of 'true' has no name hint: add --name NAME to its"),
    ("--name a -- true : --name a -- true", "two groups are named a"),
    ("--name a -- : --name b -- true", "the command of the first group is missing"),
    ("--name a -- true : --name b --", "the command to start is missing"),
    ("--name a -- true : --name b --timeout 5 -- true",
     "--timeout is an option of the whole run, not of one group hint: write it before the first '--'"),
    ("--name a -- true : --name b --share -- true", "--share is an option of the whole run"),
    ("--name a -- true : --name b -x -- true", "no such option '-x'"),
    ("--name a -- true : --name b -n x -- true", "-n/--ranks: 'x' is wrong"),
    ("--name a -- true : --name b -c 2 -s all -- true", "--cores 2 has no effect with --strategy all"),
    ("--name a --until c -- true : --name b -- true", "--until c: the run has no such group hint: its"),
    ("--name a --until b -- true : --name b --until b -- true", "--until is given twice"),
    ("--name all -- true", "'all' cannot name a group"), ("--name 1 -- true", "'1' cannot name a group"),
    ("--name a/b -- true", "'a/b' cannot name a group"), ("--until a -- true", "no effect without --name"),
    ("--ready tcp:80 -- true", "has no effect without --name"),
    ("--name a --ready tcp:0 -- true", "'0' is not a port"),
    ("--name a --ready http:80 -- true", "is not the URL of an HTTP server"),
    ("--name a --ready http://[x/ -- true", "is not the URL of an HTTP server"),
    ("--name a --ready exec: -- true", "exec: names no command"),
    ("--name a --ready text:( -- true", "wrong regular expression"),
    ("--name a --ready 'text:up' -- true", "reads log files, and there are none hint: add --log-dir DIR"),
    ("--name a --ready tcp:{rank+x} -- true", "{rank+x} cannot be computed"),
    ("--name a --ready-timeout 5 -- true", "has no effect without --ready"),
    ("--name a --env A={cpus:c} -- true : --name b -- true",
     "{cpus:c} ^^^^^^^^ hint: its groups are a, b"),
    ("--env A={cpus:c} -- true", "{cpus:c} ^^^^^^^^ hint: --name names a group"),
    ("--env A={group} -- true", "{group} has no value here"),
    ("--name a -- true : --name b --env A={group+1} -- true", "{group} is not a number"),
    ("--group a -- true", "--group and a command contradict each other"),
    ("--group a", "--group: group 'a' is not defined"),
    ("--group all", "no configuration file defines a group"),
])  # fmt: skip
def test_errors(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("run", "--dry-run", *MACHINE, *shlex.split(line), HOME=str(tmp_path))
    assert done.returncode == 125, done.stdout
    assert message in one_line(done.stderr)
    if "begin no group" in message:
        corrected = shlex.split(one_line(done.stderr).partition(": ompbind ")[2])
        assert corrected[-1] in ("./b", "./c")
        shown = call(*corrected, HOME=str(tmp_path)).stdout
        assert shown.count("command of every rank of ") == line.count("./"), shown


@pytest.mark.parametrize("output", [(), ("--output", "tag"), ("--output", "tag,files")])
def test_a_text_is_looked_for_in_log_files_that_are_written_with_tags_too(output):
    words = [*output, "--log-dir", "logs", "--name", "a", "--ready", "text:up", "--", "true"]
    assert call("run", "--dry-run", *MACHINE, *words).returncode == 0


@pytest.mark.two_cpus
def test_variables_are_the_base_of_every_group_and_presets_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = '[preset.two]\ncores = 2\n[preset.timed]\ntimeout = 5\n[defaults]\nmemory = "bind"\n'
    (tmp_path / "ompbind.toml").write_text(text)
    words = ["--name", "a", "--", "true", ":", "--name", "b", "--preset", "two", "--", "true"]
    done = call("plan", *MACHINE, "--format", "json", *words, HOME=str(tmp_path), OMPBIND_THREADS="1")
    groups = json.loads(done.stdout)["groups"]
    assert [group["request"]["cores"] for group in groups] == [None, 2]
    assert [group["request"]["threads"] for group in groups] == [1, 1]
    assert [group["request"]["memory"] for group in groups] == ["bind", "bind"]
    words[8] = "timed"
    done = call("run", "--dry-run", *words, HOME=str(tmp_path))
    assert "preset.timed.timeout is an option of the whole run, not of one group" in one_line(done.stderr)
    del words[7:9]
    assert call("run", "--dry-run", *words, HOME=str(tmp_path), OMPBIND_PRESET="timed").returncode == 0


@pytest.mark.parametrize(("first", "second", "variable"), [("2", "", "15"), ("", "15", "2")])
def test_an_error_names_where_the_options_of_its_group_come_from(first, second, variable):
    words = ["--name", "a", *(first and ["-c", first]), "--", "true", ":", "--name", "b"]
    words += [*(second and ["-c", second]), "--", "true"]
    error = one_line(call("run", "--dry-run", *MACHINE, *words, OMPBIND_CORES=variable).stderr)
    assert "group b: 1 rank of 15 cores needs 15 cores" in error
    assert ("OMPBIND_CORES=15" in error, "OMPBIND_CORES" in error) == (not second, not second)


FILE = """
[defaults]
reserve-total = 1
[group.load]
command = ["./client", "--to", "a b"]
after = "server"
ranks = 4
cores = 1
[group.server]
command = ["./server"]
env = { MODE = "fast" }
cores = 4
ready = "tcp:8000"
[group.other]
command = ["./other"]
"""


@pytest.fixture
def in_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ompbind.toml").write_text(FILE)
    tmp_path.chmod(0o755)
    return lambda *words: call(*words, HOME=str(tmp_path))


def test_groups_of_a_file(in_home):
    done = in_home("run", "--dry-run", *MACHINE, "--group", "load", "--group", "server")
    assert done.returncode == 0, done.stderr
    assert "command of every rank of server: ./server\n" in done.stdout
    assert "command of every rank of load: ./client --to 'a b'" in done.stdout
    assert done.stdout.index("server 0") < done.stdout.index("load 0")  # load waits for it
    record = json.loads(in_home("plan", *MACHINE, "--format", "json", "--group", "all").stdout)
    assert [group["group"] for group in record["groups"]] == ["server", "load", "other"]
    assert record["groups"][0]["ranks"][0]["env"]["MODE"] == "fast"
    assert "MODE" not in record["groups"][2]["ranks"][0]["env"]
    assert [group["request"]["reserve_total"] for group in record["groups"]] == [1, 1, 1]


@pytest.mark.parametrize(("words", "changes", "message"), [
    ("--group load", {}, "after = 'server' is not a group of this run hint: add --group server"),
    ("--group lood", {}, "group 'lood' is not defined hint: did you mean load?"),
    ("--group load,server -n 2", {}, "--ranks is an option of a group"),
    ("--preset base --group load,server", {"[group.load]": "[preset.base]\n[group.load]"},
     "--preset is an option of a group, not of the run hint: write it below [group.NAME]"),
    ("-c 2 --group server", {}, "--cores is an option of a group, not of the run hint: write it below"),
    ("--group all", {'"./server"]': '"./server"]\nafter = "load"'}, "groups wait for each other in a circle"),
    ("--group all", {'["./other"]': "[]"}, "group.other.command is not a list of words"),
    ("--group all", {'command = ["./other"]': ""}, "group.other.command is missing"),
    ("--group all", {"[group.other]": "[group.other]\ntimeout = 5"},
     "group.other.timeout is an option of the whole run, not of a group"),
    ("--group all", {"[group.other]": "[group.all]"}, "group.all has a wrong name"),
    ("--group all", {"[group.other]": "[group.other]\nafter = 5"}, "is a number, not the name of a group"),
    ("--group all", {"[group.other]": "[group.other]\ncoers = 5"}, "did you mean cores?"),
])  # fmt: skip
def test_errors_of_files(in_home, tmp_path, words, changes, message):
    text = FILE
    for old, new in changes.items():
        text = text.replace(old, new)
    (tmp_path / "ompbind.toml").write_text(text)
    done = in_home("run", "--dry-run", *MACHINE, *words.split())
    assert done.returncode == 125, done.stdout
    assert message in one_line(done.stderr)


def test_a_command_comes_only_from_a_file_that_other_users_cannot_write(in_home, tmp_path):
    (tmp_path / "ompbind.toml").chmod(0o666)
    for named in ([], ["--config", "ompbind.toml"]):
        done = in_home("run", "--dry-run", *MACHINE, *named, "--group", "server")
        assert (done.returncode, "other users may write to it" in one_line(done.stderr)) == (125, True)
