"""Which values are secret, and where they are masked."""

import pytest

from ompbind.planning.rank_command import RunSpec, mask_secrets
from ompbind.planning.rank_variables import SECRET_WORDS, is_secret


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((word, True) for word in sorted(SECRET_WORDS)),
        ("HF_TOKEN", True), ("OPENAI_API_KEY", True), ("api_key", True), ("KEY_FILE", True),
        ("TOKENIZERS_PARALLELISM", False), ("KEYBOARD", False), ("MONKEY", False), ("OMP_PLACES", False),
        ("APIKEY", False), ("", False),
    ],
)  # fmt: skip
def test_names_of_secret_variables(name, secret):
    assert is_secret(name) == secret


def test_values_of_variables_and_words_of_the_command_are_masked():
    spec = RunSpec(
        argv=("env", "HF_TOKEN=abc", "PORT=1", "--API_KEY=x", "HF_TOKEN", "a b_KEY=c", "HF_TOKEN=a=b"),
        run_id="r", base={"HF_TOKEN": "inherited"}, added_variables=(("API_KEY", "x{rank}"), ("PORT", "80")),
    )  # fmt: skip
    masked = mask_secrets(spec)
    words = ("env", "HF_TOKEN=***", "PORT=1", "--API_KEY=x", "HF_TOKEN", "a b_KEY=c", "HF_TOKEN=***")
    assert masked.argv == words
    assert mask_secrets(spec.replace(wrap=spec.argv)).wrap == words
    assert masked.added_variables == (("API_KEY", "***"), ("PORT", "80"))
    assert masked.replace(argv=spec.argv, added_variables=spec.added_variables) == spec
