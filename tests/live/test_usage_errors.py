"""Usage errors name the option, or the variable, that is wrong, in the style of all other errors."""

import pytest


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (["run"], {}, "the command to start is missing hint: write it after --;"),
        (["run", "-t", "0", "--", "true"], {}, "-t/--threads: '0' is not a whole number of at least 1"),
        (["run", "--", "true"], {"OMPBIND_THREADS": "x"}, "OMPBIND_THREADS: 'x' is not a whole number"),
        (["run", "-t", "1_0", "--", "true"], {}, "-t/--threads: '1_0' is not a whole number of at least 1"),
        (["run", "-n", "٣", "--", "true"], {}, "-n/--ranks: '٣' is wrong: write auto or a whole number"),
        (["plan", "-n", "9" * 5000], {}, f"-n/--ranks: '{'9' * 57}...' is too large; the limit is"),
        (["plan", "-n", "9999999999"], {}, "-n/--ranks: '9999999999' is too large; the limit is 999999999"),
        (["plan", "-t", "x" * 5000], {}, f"-t/--threads: '{'x' * 57}...' is not a whole number of at"),
        (
            ["run", "--", "true"],
            {"OMPBIND_SHARE": "maybe"},
            "OMPBIND_SHARE: 'maybe' is not 1 (yes) or 0",
        ),
        (["run", "-s", "best", "--", "true"], {}, "-s/--strategy: 'best' is not a strategy: write balanced"),
        (["run", "--rank", "2", "--", "true"], {}, "no such option '--rank' hint: did you mean --ranks?"),
        (
            ["run", "--on-failure", "restart:0", "--", "true"],
            {},
            "--on-failure: restart:N: '0' is not a whole number of at least 1 hint: write restart:N for",
        ),
        (["plan", "-n"], {}, "option '-n' requires an argument"),
        (["run", "--mask"], {}, "option '--mask' requires an argument hint: see 'ompbind run --help'"),
        (
            ["exec", "--timeout", "5", "true"],
            {},
            "no such option '--timeout' hint: --timeout is an option of",
        ),
        (
            ["run", "--version"],
            {},
            "no such option '--version' hint: write --version before the verb: 'ompbind --version'",
        ),
        (
            ["exec", "-V", "--", "true"],
            {},
            "no such option '-V' hint: write --version before the verb: 'ompbind --version'",
        ),
        (
            ["run", "--bind", "socket", "--", "true"],
            {},
            "--bind: 'socket' is not rank, core, thread, exact or none hint: did you mean -s packages?",
        ),
        (
            ["plan", "--devices", "auto,gpu"],
            {},
            "--devices: 'auto,gpu' is not a kind of device: write none, auto, gpu, nic or gpu,nic hint: see"
            " 'ompbind plan --help-all'",
        ),
        (
            ["plan", "--devices", "gpu,"],
            {},
            "--devices: 'gpu,' is not a kind of device: write none, auto, gpu, nic or gpu,nic",
        ),
        (["plan", "--near", ""], {}, "--near: the name of a device is missing"),
        (
            ["plan", "--devices-per-rank", "2"],
            {},
            "--devices-per-rank 2 has no effect without --devices hint: add --devices gpu",
        ),
        (["--verison"], {}, "no such option '--verison' hint: did you mean --version?"),
        (["-V"], {}, "no such option '-V' hint: did you mean --version?"),
        (["ps", "--json"], {}, "no such option '--json' hint: did you mean --format json?"),
        (["-n", "4"], {}, "no such option '-n' hint: write options after the verb: 'ompbind run -n'"),
        (
            ["run", "--export", "A=1", "--", "true"],
            {},
            "no such option '--export' hint: did you mean --env A=1?",
        ),
        (["plan", "--no-strategi"], {}, "no such option '--no-strategi' hint: did you mean --no-strategy?"),
        (
            ["run", "-np", "4", "true"],
            {},
            "-n/--ranks: 'p' is wrong: write auto or a whole number of at least 1 hint: did you mean -n 4?",
        ),
        (
            ["run", "-bind-to", "socket", "true"],
            {},
            "no such option '-bind-to' hint: did you mean -s packages?",
        ),
        (
            ["run", "--cpu-bind=map_cpu:0,1", "--", "true"],
            {},
            "no such option '--cpu-bind' hint: did you mean -m",
        ),
        (
            ["plan", "-s", "node"],
            {},
            "-s/--strategy: 'node' is not a strategy: write balanced, compact, spread,"
            " nodes, packages, numa, l3, l2, books, drawers, cores or all hint: did you mean"
            " 'nodes'?",
        ),
        (
            ["plan", "--format", "jsn"],
            {},
            "--format: 'jsn' is not table, picture, svg, json, env, sh, taskset,"
            " numactl, vllm, sglang, slurm, rankfile, systemd or docker hint: did you"
            " mean 'json'?",
        ),
        (
            ["plan", "--compare", "balanced,node"],
            {},
            "--compare: 'node' is not a strategy: write balanced, compact, spread, nodes, packages, numa,"
            " l3, l2, books, drawers, cores or all hint: did you mean 'nodes'?",
        ),
        (["run", "--config", "", "true"], {}, "--config: the name of a file is missing"),
        (["run", "--preset=", "true"], {}, "--preset: the name of a preset is missing"),
        (["run", "--run-id", "", "true"], {}, "--run-id: the name of a run is missing"),
        (["run", "true"], {"OMPBIND_CONFIG": "/none.toml"}, "OMPBIND_CONFIG: /none.toml: No such file"),
        (["start", "-n", "2"], {}, "no such command 'start' hint: did you mean 'run'?"),
        (
            ["sleep", "1"],
            {},
            "no such command 'sleep' hint: to start a command, write 'ompbind run -- sleep'",
        ),
        (["frobnicate"], {}, "no such command 'frobnicate' hint: see 'ompbind --help'"),
        (
            ["run", "--dry-run=yes", "--", "true"],
            {},
            "option '--dry-run' does not take a value hint: see 'ompbind run --help'",
        ),
        (["ps", "all"], {}, "unexpected extra argument (all)"),
        (["runs"], {}, "no such command 'runs' hint: did you mean 'ps'?"),
    ],
)
def test_usage_errors(ompbind, args, env, message):
    done = ompbind(*args, env=env)
    assert done.returncode == (125 if args[0] in ("run", "exec") else 2)
    assert done.stdout == ""
    usage, _, error = done.stderr.partition("ompbind: error: ")
    is_unknown = message.startswith(("no such", "unexpected"))
    assert usage.startswith("Usage: ompbind " if is_unknown else "")
    assert " ".join(error.split()).startswith(message)


@pytest.mark.parametrize("text", ["30s1m", "1m2m", "1m30", "1h 30m", "5M", ""])
def test_a_time_has_each_unit_once_and_the_largest_first(ompbind, text):
    done = ompbind("run", f"--timeout={text}", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"'{text}' is not a time" in " ".join(done.stderr.split())
