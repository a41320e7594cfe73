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
    return " ".join(f"{use.file.kind}:{use.preset.name}" for use in uses)


SYSTEM = file(FileKind.SYSTEM, preset("a"), preset("site", hostname="node*"))
USER = file(FileKind.USER, preset("a"), preset("b", "site"), preset("c", "b"))
PROJECT = file(FileKind.PROJECT, preset("p"), preset("q", "p"))
FILES = (SYSTEM, USER, PROJECT)


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("p", "project:p"), ("q", "project:p project:q"), ("a", "user:a"),
        ("c", "system:site user:b user:c"),
    ],
)  # fmt: skip
def test_a_named_preset_follows_what_it_inherits(name, chain):
    assert names(list_inherited(find_preset(FILES, name, "--preset"), FILES)) == chain


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ([preset("a", "b"), preset("b", "c"), preset("c", "b")], "inherit in a circle: b → c → b"),
        ([preset("a", "a")], "inherit in a circle: a → a"),
        ([preset("a", "z")], "preset a inherits 'z'"),
        ([preset("a", "site")], "preset a inherits 'site', which is not defined"),
        ([*(preset("a" * i, "a" * (i + 1)) for i in range(1, 40)), preset("a" * 40)], "more than 20 presets"),
    ],
)
def test_wrong_inheritance(presets, message):
    files = (SYSTEM, file(FileKind.PROJECT, *presets))
    with pytest.raises(ConfigurationError) as caught:
        list_inherited(find_preset(files[1:], "a", "--preset"), files)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("files", "name", "facts"),
    [
        ((USER, file(FileKind.PROJECT, preset("a"))), "a", ["--preset", "/project.toml", "/user.toml"]),
        (FILES, "sites", ["'sites' is not defined", "did you mean site?"]),
        ((PROJECT,), "sites", ["p, q"]),
        ((), "sites", ["'ompbind config'"]),
    ],
)
def test_a_name_that_means_no_preset_or_two(files, name, facts):
    with pytest.raises(ConfigurationError) as caught:
        find_preset(files, name, "--preset")
    assert all(fact in f"{caught.value.message} {caught.value.hint}" for fact in facts)


@pytest.mark.parametrize(
    ("hostname", "cpus", "matches"),
    [
        ("node07", None, True), ("node07.cluster.org", None, True), ("node0?", None, True),
        ("*.cluster.org", None, True), ("node", None, False), ("", 64, True), ("", 32, False),
        ("node*", 64, True), ("node*", 32, False), ("", None, False),
    ],
)  # fmt: skip
def test_conditions(hostname, cpus, matches):
    conditions = ({"hostname": hostname} if hostname else {}) | ({"cpus": cpus} if cpus else {})
    found = match_preset((file(FileKind.USER, preset("x", **conditions)),), HOST)
    assert (found is not None) == matches


def test_the_user_decides_before_the_system_and_a_project_never():
    one = preset("one", cpus=64)
    assert names([match_preset((SYSTEM, file(FileKind.USER, one)), HOST)]) == "user:one"
    assert names([match_preset((SYSTEM, USER), HOST)]) == "system:site"
    assert match_preset((file(FileKind.PROJECT, one), file(FileKind.NAMED, one)), HOST) is None
    two = file(FileKind.USER, one, preset("two", hostname="node*"))
    with pytest.raises(ConfigurationError, match="one and two both match"):
        match_preset((two,), HOST)
