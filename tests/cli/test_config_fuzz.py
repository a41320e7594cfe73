"""Any bytes as a configuration file: an error that names the file, or a plan; never a traceback."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli import configuration
from ompbind.cli.config_files import FileContent, FileKind, FoundFiles
from ompbind.cli.main import load_verb
from ompbind.cli.options import find_keys
from ompbind.cli.request import make_request, make_run_spec
from ompbind.cli.settings import make_planning_settings
from ompbind.errors import ConfigurationError, OmpbindError
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import make_spec_before_plan
from ompbind.report.text import render_error
from tests.long import examples
from tests.machine.sources.test_fuzz import mutate

MACHINE = read_machine("synthetic:pack:1 numa:1 core:4 pu:2")
PATH = "/fuzzed.toml"

KEYS = [key for key in find_keys() if key not in ("preload", "expect", "topology", "compat")]
VALUES = """1 2 0 -1 1.5 true false "auto" "all" "0-3" "0|1" "node:0" "spread" "thread" "A=1" [] {} {A="1"}
["A=1","B={rank}"] "5m" 1979-05-27 [[1]] '' "x" 'first' 99999999999999999999999 inf nan "none" "bind"
"a\\u0000/b" {"A=B"="1"} """
NAMES = ["a", "b", "c"]
LINES = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(KEYS), st.sampled_from(VALUES.split())),
    st.builds("no-{} = true".format, st.sampled_from(KEYS)),
    st.sampled_from(["[defaults]", "[preset]", "[tool.ompbind]", "[[preset.a]]", "[preset.a.env]", "#", ""]),
    st.builds("[preset.{}]".format, st.sampled_from(NAMES)),
    st.builds("inherits = '{}'".format, st.sampled_from(NAMES)),
    st.sampled_from(["match = { cpus = 8 }", "match = { hostname = '*' }", "match = 1", "PORT = '{rank}'"]),
)
TEXTS = st.lists(LINES, max_size=8).map(lambda lines: "\n".join(["[defaults]", *lines]).encode())


def check(content, preset):
    """Plan with a file; return whether there is a plan."""
    words = ["--preset", preset] if preset else []
    try:
        with patch.object(configuration, "read_found_files", lambda _: FoundFiles(read=(content,))):
            planning = make_planning_settings(load_verb("plan").make_context("plan", words))
        spec = make_spec_before_plan(make_run_spec(planning, "run"))
        return bool(make_plan(MACHINE, make_request(planning, spec, MACHINE)).placements)
    except ConfigurationError as error:
        assert error.message.startswith(PATH) or ("is not defined" in error.message and preset)
        assert render_error(error, 60)
    except OmpbindError as error:
        assert error.message
    return False


@examples(5)
@given(st.data(), TEXTS, st.sampled_from([*FileKind]), st.sampled_from([None, *NAMES]))
def test_any_file_is_an_error_or_a_plan(data, text, kind, preset):
    content = FileContent(kind=kind, path=PATH, data=mutate(data, text) if data.draw(st.booleans()) else text)
    check(content, preset)


def test_a_correct_file_is_a_plan():
    text = b"[defaults]\nranks = 2\n[preset.a]\nstrategy = 'spread'\nthreads = 1\n"
    assert check(FileContent(kind=FileKind.USER, path=PATH, data=text), "a")
