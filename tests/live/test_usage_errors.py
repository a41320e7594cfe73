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
        (["run", "--rank", "2", "--", "true"], {}, "no such option '--rank' hint: did you mean --mask or"),
        (["run", "--dry-run=yes", "--", "true"], {}, "option '--dry-run' does not take a value"),
        (["ps", "all"], {}, "unexpected extra argument (all)"),
        (["runs"], {}, "no such command 'runs' hint: see 'ompbind --help'"),
    ],
)
def test_usage_errors(ompbind, args, env, message):
    done = ompbind(*args, env=env)
    assert done.returncode == (125 if args[0] == "run" else 2)
    assert done.stdout == ""
    usage, _, error = done.stderr.partition("ompbind: error: ")
    is_unknown = message.startswith(("no such", "unexpected"))
    assert usage.startswith("Usage: ompbind " if is_unknown else "")
    assert " ".join(error.split()).startswith(message)
