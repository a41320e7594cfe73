"""Which preset is used: by name, by the machine, and what it inherits."""

import pytest

from ompbind.cli.config_defaults import Host, find_preset, list_inherited, match_preset
from ompbind.cli.config_files import FileKind
from ompbind.cli.config_parse import ConfigurationFile, Preset
from ompbind.errors import ConfigurationError

HOST = Host(hostname="node07.cluster.org", cpus=64)


def preset(name, inherits="", **match):
    return Preset(name=name, inherits=inherits, settings=(), **match)


def file(kind, *presets):
    return ConfigurationFile(kind=kind, path=f"/{kind}.toml", presets=presets)


def names(uses):
    return [(use.file.kind, use.preset.name) for use in uses]


SYSTEM = file(FileKind.SYSTEM, preset("a"), preset("site", hostname="node*"))
USER = file(FileKind.USER, preset("a"), preset("b", "site"), preset("c", "b"))
PROJECT = file(FileKind.PROJECT, preset("p"), preset("q", "p"))
FILES = (SYSTEM, USER, PROJECT)


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("p", [("project", "p")]),
        ("q", [("project", "p"), ("project", "q")]),
        ("a", [("user", "a")]),
        ("c", [("system", "site"), ("user", "b"), ("user", "c")]),
    ],
)
def test_a_named_preset_follows_what_it_inherits(name, chain):
    assert names(list_inherited(find_preset(FILES, name, "--preset"), FILES)) == chain


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ([preset("a", "b"), preset("b", "c"), preset("c", "b")], "presets inherit in a circle: b → c → b"),
        (
            [preset("a", "b"), preset("b", "c"), preset("c", "a")],
            "presets inherit in a circle: a → b → c → a",
        ),
        ([preset("a", "a")], "presets inherit in a circle: a → a"),
        ([preset("a", "z")], "preset a inherits 'z', which is not defined"),
        ([preset("a", "site")], "preset a inherits 'site', which is not defined"),
    ],
)
def test_wrong_inheritance(presets, message):
    files = (SYSTEM, file(FileKind.PROJECT, *presets))
    with pytest.raises(ConfigurationError) as caught:
        list_inherited(find_preset(files[1:], "a", "--preset"), files)
    assert message in caught.value.message


def test_the_number_of_inherited_presets_is_limited():
    presets = [preset(str(number), str(number + 1)) for number in range(3000)]
    files = (file(FileKind.USER, *presets, preset("3000", "0")),)
    with pytest.raises(ConfigurationError, match="preset 0 inherits more than 20 presets"):
        list_inherited(find_preset(files, "0", "--preset"), files)


def test_a_name_of_the_project_and_of_the_user_is_an_error_that_shows_both():
    files = (USER, file(FileKind.PROJECT, preset("a")))
    with pytest.raises(ConfigurationError) as caught:
        find_preset(files, "a", "OMPBIND_PRESET")
    assert caught.value.message == "OMPBIND_PRESET: /project.toml and /user.toml both define the preset 'a'"


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (FILES, "did you mean site?"),
        ((PROJECT,), "these are defined: p, q"),
        ((), "'ompbind config' shows which files are read"),
    ],
)
def test_an_unknown_preset(files, hint):
    with pytest.raises(ConfigurationError) as caught:
        find_preset(files, "sites", "--preset")
    assert caught.value.message == "--preset: preset 'sites' is not defined"
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({"hostname": "node07"}, True),
        ({"hostname": "node07.cluster.org"}, True),
        ({"hostname": "node0?"}, True),
        ({"hostname": "*.cluster.org"}, True),
        ({"hostname": "node"}, False),
        ({"cpus": 64}, True),
        ({"cpus": 32}, False),
        ({"hostname": "node*", "cpus": 64}, True),
        ({"hostname": "node*", "cpus": 32}, False),
        ({}, False),
    ],
)
def test_conditions(conditions, matches):
    found = match_preset((file(FileKind.USER, preset("x", **conditions)),), HOST)
    assert (found is not None) == matches


def test_the_user_decides_before_the_system_and_a_project_never():
    one = preset("one", cpus=64)
    assert names([match_preset((SYSTEM, file(FileKind.USER, one)), HOST)]) == [("user", "one")]
    assert names([match_preset((SYSTEM, USER), HOST)]) == [("system", "site")]
    assert match_preset((file(FileKind.PROJECT, one), file(FileKind.NAMED, one)), HOST) is None


def test_two_presets_that_match_are_an_error():
    files = (file(FileKind.USER, preset("one", cpus=64), preset("two", hostname="node*")),)
    with pytest.raises(ConfigurationError, match="the presets one and two both match this machine"):
        match_preset(files, HOST)
