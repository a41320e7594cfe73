"""Values of variables that are not shown, because the names of the variables say that they are secret."""

from ompbind.planning.rank_command import RunSpec

MASKED = "***"

SECRET_WORDS = frozenset({"TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"})
"""A variable is secret if a word of its name, between underscores, is one of these, in any case."""


def is_secret(name: str) -> bool:
    """Return whether the name of a variable says that its value is secret."""
    return not SECRET_WORDS.isdisjoint(name.upper().split("_"))


def mask_secrets(spec: RunSpec) -> RunSpec:
    """Return what ranks have in common with "***" for secret values, for reports and messages.

    Masked are the variables of the user, and words NAME=VALUE of the command and of its wrapper, as in
    `env NAME=VALUE ./app`.
    """
    return spec.replace(
        argv=tuple(map(mask_word, spec.argv)),
        wrap=tuple(map(mask_word, spec.wrap)),
        added_variables=tuple(
            (name, MASKED if is_secret(name) else value) for name, value in spec.added_variables
        ),
    )


def mask_word(word: str) -> str:
    """Return a word of a command without its value, if it sets a secret variable (NAME=VALUE)."""
    name, equals, _ = word.partition("=")
    return f"{name}={MASKED}" if equals and name.isidentifier() and is_secret(name) else word
