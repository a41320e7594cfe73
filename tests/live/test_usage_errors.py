"""Usage errors name the option, or the variable, that is wrong, in the style of all other errors."""

import shlex

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import one_line
from tests.tables import rows


@pytest.mark.parametrize(("line", "message"), rows("""
    run                                 | the command to start is missing hint: write it after --;
    run -t 0 -- true                    | -t/--threads: '0' is not a whole number of at least 1
    run -n ٣ -- true                    | -n/--ranks: '٣' is wrong
    plan -n                             | option '-n' requires an argument
    exec --timeout 5 true               | no such option '--timeout' hint: --timeout is an option of
    plan --devices auto,gpu             | --devices: 'auto,gpu' is not a kind of device
    -n 4                                | no such option '-n' hint: write options after the verb: 'ompbind run
    run --cpu-bind=map_cpu:0,1 -- true  | no such option '--cpu-bind' hint: write -m '0|1' for CPUs of each
    plan --format jsn                   | --format: 'jsn' is not table, picture, svg, json, mask, env, sh,
    run --run-id '' true                | --run-id: the name of a run is missing
    run --dry-run=yes -- true           | option '--dry-run' does not take a value hint: see 'ompbind run
    plan --rank 0                       | --rank requires
    plan -n 2 --share --format sh       | choose a rank with --rank, 0 to 1
    plan -n 2 --share --format sh --rank 2 | --rank 2: the plan has ranks 0 to 1
    plan --topology /nowhere            | topology source '/nowhere' does not exist
    """))  # fmt: skip
def test_usage_errors(line, message):
    words = shlex.split(line)
    done = call(*words)
    assert done.returncode == (125 if words[0] in ("run", "exec") else 2)
    assert done.stdout == ""
    usage, _, error = done.stderr.partition("ompbind: error: ")
    assert usage.startswith("Usage: ompbind ") == message.startswith(("no such", "unexpected"))
    assert " ".join(error.split()).startswith(message)


def test_cores_that_look_like_numbers_of_cpus():
    """`taskset -c` has a list of CPUs."""
    for text, hint in (
        ("0", "-m 0"), ("0-1", "-m 0-1"), ("0,2", "-m 0,2"), ("0x3", "-m 0x3"), ("0|1", "-m '0|1'"),
        ("x1", "--help'"), ("all", "--help'"), ("1_0", "--help'"), ("9" * 12, "--help'"),
    ):  # fmt: skip
        done = call("plan", "-c", text)
        assert (done.returncode, done.stderr.rstrip().endswith(f" {hint}")) == (2, True), done.stderr


def test_a_long_value_is_cut():
    error = one_line(call("plan", "-n", "9" * 5000).stderr)
    assert f"-n/--ranks: '{'9' * 57}...' is too large" in error


def test_misuse_exits_with_2(ompbind):
    for args in ([], ["bogus"], ["topo", "x"], ["--config", "run", "plan"]):
        done = ompbind(*args)
        assert (done.returncode, done.stdout, bool(done.stderr)) == (2, "", True)
