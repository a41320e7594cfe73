r"""Several commands in one command line, or in a configuration file: a context of click for each group.

    ompbind run --name server -c 8 -- ./server : --name load -n 4 -- ./client
                \____ first context ________/   \____ second context _____/

A word ":" begins a group if the first group has a name, an option follows, and later "--". Options of the
whole run stand in the first group; the other contexts have the same values of these.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import click

from ompbind.cli import END, SEPARATOR
from ompbind.cli.config_defaults import GroupTable, make_undefined_error
from ompbind.cli.option import ValueLevel, VerbContext
from ompbind.cli.readers import ALL_GROUPS
from ompbind.errors import ConfigurationError, OptionError
from ompbind.programs.wrappers import PROCESS_LAUNCHERS, find_launcher_name

_OF_ANY_GROUP = ("until", "group")
"""Options of the whole run that the command line of any group may have, or that choose the groups."""


def split_groups(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each group: the command of the first, the options and the command of the others."""
    groups: list[list[str]] = [[]]
    at = 0
    while at < len(words):
        option = words[at + 1] if words[at] == SEPARATOR and at + 1 < len(words) else ""
        if option.startswith("-") and option != END and END in words[at + 2 :]:
            command = words.index(END, at + 2) + 1
            groups.append(list(words[at + 1 : command]))
            at = command
        else:
            groups[-1].append(words[at])
            at += 1
    return groups


def parse_groups(command: click.Command, ctx: VerbContext) -> tuple[VerbContext, ...]:
    """Return the contexts of all groups of a command line, in the order in which they start.

    These are none if the first group has no name. Raises OptionError for groups without a name, for names
    that are not unique or unknown, and for groups without `--`.
    """
    if ctx.params.get("group"):
        groups = list(_parse_tables(command, ctx))
    elif not ctx.params.get("name"):
        _check_command(ctx, ctx)
        return ()
    else:
        ctx.command_words = ctx.params["words"]
        first, *others = split_groups(ctx.params["words"])
        if others and not first:
            raise OptionError("the command of the first group is missing", hint="write it before ':'")
        ctx.params["words"] = tuple(first)
        made = (command.make_context(ctx.info_name, words, parent=ctx.parent, run=ctx) for words in others)
        groups = [ctx, *(other for other in made if isinstance(other, VerbContext))]
    names = [group.params["name"] for group in groups]
    for group, name in zip(groups, names, strict=True):
        _check_command(group, ctx)
        if names.count(name) > 1:
            raise OptionError(f"two groups are named {name}", hint="give each group a name of its own")
    until = [given for each in dict.fromkeys((ctx, *groups)) if (given := each.params.get("until"))]
    if len(until) > 1:
        raise OptionError("--until is given twice", hint="one group decides when the run ends")
    for name in until:  # any group may have it
        if name not in names:
            hint = f"its groups are {', '.join(names)}"
            raise OptionError(f"--until {name}: the run has no such group", hint=hint)
        ctx.params["until"] = name
    return tuple(groups)


def _check_command(group: VerbContext, run: VerbContext) -> None:
    """Raise OptionError with the corrected line if a command has `:` and an option: -- or --name is missing.

    Without both, it is a warning. Commands of launchers have `:` themselves.
    """
    words, typed = group.params["words"], run.typed
    at = next(iter(_find_starts(run, words)), 0)
    has_own = any(find_launcher_name(word) in PROCESS_LAUNCHERS for word in words[:at])
    if not at or has_own or group.table or not (run.params["name"] or not run.sources.is_given("name")):
        return
    text = f"':' and {words[at + 1]} are words of the command {words[0]}, and begin no group"
    if not run.params["name"] and END not in words[at:]:
        hint = "groups have --name and --: ompbind help groups; --no-name hides this warning"
        run.messages += () if run.params.get("quiet") else (f"warning: {text} ({hint})",)
        return
    first, parser = len(typed) - len(run.command_words or words), run.command.make_parser(run)
    fixed = [*typed]
    starts = (first + start + 1 for start in _find_starts(run, typed[first:]))
    for number, start in reversed([*enumerate((0, *starts), 1)]):
        end = len(fixed) - len(parser.parse_args(fixed[start:])[0]["words"])
        if not any(word.partition("=")[0] == "--name" for word in fixed[start:end]):
            fixed[start:start], end = ["--name", f"group{number}"], end + 2
        fixed[end:end] = [END] * (fixed[end - 1] != END)
    line = shlex.join(["ompbind", str(run.info_name), *fixed])
    raise OptionError(text, hint=f"write, or use --no-name if ':' is for the command: {line}")


def _find_starts(ctx: VerbContext, words: Sequence[str]) -> list[int]:
    """Return where a `:` before an option of ompbind stands in the words of a command."""
    pairs = enumerate(pairwise(words))
    return [at for at, (word, option) in pairs if word == SEPARATOR and ctx.find_option(option)]


def _parse_tables(command: click.Command, run: VerbContext) -> Iterator[VerbContext]:
    if run.params["words"]:
        hint = "omit the command after --; [group.NAME] has it"
        raise OptionError("--group and a command contradict each other", hint=hint)
    for name, option in run.sources.options.items():
        if run.sources.level(name) == ValueLevel.COMMAND_LINE and not (
            option.whole_run or name in _OF_ANY_GROUP
        ):
            text = f"{option.long_name} is an option of a group, not of the run"
            raise OptionError(text, hint="write it below [group.NAME]")
    config = run.params["config"]
    typed = run.sources.level("config") == ValueLevel.COMMAND_LINE
    args = ["--config", config] if typed and config else ["--no-config"] if typed else []
    for table in _order_tables(_choose_tables(run)):
        words = [*args, END, *table.command]
        ctx = command.make_context(run.info_name, words, parent=run.parent, run=run, table=table)
        assert isinstance(ctx, VerbContext)
        yield ctx


def _choose_tables(run: VerbContext) -> dict[str, GroupTable]:
    """Return the groups that --group names, in its order; all groups in the order of the files."""
    tables, chosen = run.find_tables(), dict[str, GroupTable]()
    ignored = run.configuration.ignored
    for name in run.params["group"]:
        if name != ALL_GROUPS and name not in tables:
            raise make_undefined_error("--group: group", name, list(tables), ignored)
        chosen |= tables if name == ALL_GROUPS else {name: tables[name]}
    if not chosen:
        hint = "write [group.NAME] in ompbind.toml; 'ompbind config' shows which files are read"
        text = "--group: no configuration file defines a group"
        raise ConfigurationError(text, hint="; ".join(map(str, ignored)) or hint)
    return chosen


def _order_tables(tables: Mapping[str, GroupTable]) -> Iterator[GroupTable]:
    """Yield groups so that each follows the group that its `after` names, else in the same order.

    Raises ConfigurationError for the name of another group, and for a circle.
    """
    left, done = dict(tables), {""}
    while left:
        due = next((table for table in left.values() if table.after in done), None)
        if due is None:
            wrong = next((table for table in left.values() if table.after not in tables), None)
            text, hint = ": groups wait for each other in a circle", "remove one after"
            if wrong:
                text, hint = " is not a group of this run", f"add --group {wrong.after}, or remove it"
            table = wrong or next(iter(left.values()))
            raise ConfigurationError(f"{table.place}: after = {table.after!r}{text}", hint=hint)
        done.add(due.name)
        yield left.pop(due.name)


def adopt_run_options(ctx: VerbContext, run: VerbContext) -> None:
    """Give the context of a group the values of the options of the whole run.

    Raises OptionError if the group sets such an option itself, on its command line or by its preset.
    """
    own_preset = ctx.sources.level("preset") == ValueLevel.COMMAND_LINE
    for name, option in ctx.sources.options.items():
        if not option.whole_run:
            continue
        level = ctx.sources.level(name)
        is_of_table = ctx.table is not None and name == "config"
        is_own = level == ValueLevel.COMMAND_LINE or (level == ValueLevel.PRESET and own_preset)
        if is_own and not is_of_table and not ctx.resilient_parsing:
            hint = "write it before the first '--'"
            if level == ValueLevel.PRESET:
                hint = "write it below [defaults], or give this preset to the first group"
            text = f"{ctx.sources.place(name)} is an option of the whole run, not of one group"
            raise OptionError(text, hint=hint)
        ctx.params[name] = run.params[name]
        ctx.sources.occurrences[name] = ()
        ctx.sources.effective.pop(name, None)
        if name in run.sources.effective:
            ctx.sources.effective[name] = run.sources.effective[name]
    if ctx.table is not None:
        ctx.params["name"] = ctx.table.name
    elif not (ctx.params["name"] or ctx.resilient_parsing):
        text = f"the group of {''.join(ctx.params['words'][:1])!r} has no name"
        raise OptionError(text, hint="add --name NAME to its options")
