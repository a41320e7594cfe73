"""`ompbind completion`: click's scripts for bash, zsh and fish, with what they leave out.

`_ompbind`, around click's function, completes the words after `--` as a command line of their own, and adds
the option before `=` where the shell replaces the whole word.
"""

import re

import click
from click import shell_completion

from ompbind.cli.console import write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError

_BASH = r"""
_ompbind() {
    local i word type value completion joined=(ompbind) command=$1
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _comp_command_offset >/dev/null; then _comp_command_offset $((i + 1))
            elif declare -F _command_offset >/dev/null; then _command_offset $((i + 1))
            elif ((COMP_CWORD == i + 1)); then mapfile -t COMPREPLY < <(compgen -c -- "$2")
            else compopt -o default
            fi
            return
        fi
    done
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do  # bash splits words at = and at colons
        if [[ $word == [=:]* || ${joined[-1]} == *[=:] ]]; then joined[-1]+=$word; else joined+=("$word"); fi
    done
    local COMP_WORDS=("${joined[@]}") COMP_CWORD=$((${#joined[@]} - 1))
    # the path of ompbind is as typed, with its quotes
    if [[ $command == *[\\\'\"]* ]]; then command=$(xargs printf %s <<<"$command"); fi
    _ompbind_completion "${command/#\~\//"$HOME/"}" "${@:2}" 2>/dev/null
    if [[ $2 == --*=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/"${2%%=*}="}"); fi  # = is not in COMP_WORDBREAKS
    if [[ $2 == : || $3 == : ]]; then COMPREPLY=("${COMPREPLY[@]##*:}"); fi
}
complete -o nosort -F _ompbind ompbind
"""

_ZSH = r"""
_ompbind() {
    local -i at=${words[(ie)--]}
    if ((at < CURRENT)); then
        shift at words
        ((CURRENT -= at))
        _normal
    else
        if [[ ${words[CURRENT]} == --*=* ]]; then compset -P '*='; fi
        _ompbind_completion "$@"
    fi
}
if ((! $+functions[compdef])); then autoload -Uz compinit && compinit -i; fi
compdef _ompbind ompbind
"""

_FISH = r"""
function _ompbind
    set -l words (commandline -opc)
    if set -l at (contains -i -- -- $words)
        set -e words[1..$at]
        complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
    else
        set -l option (string match -r -- '^--[^=]*=' (commandline -ct))
        string replace -r -- '^' "$option" (_ompbind_completion)
    end
end
complete --erase --command ompbind
complete --no-files --command ompbind --arguments '(_ompbind)'
"""

SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def make_script(shell: str) -> str:
    """Return the script of a shell: click's until it registers its function, and what it leaves out."""
    kind, own = shell_completion.get_completion_class(shell), SHELLS[shell]
    assert kind
    text = kind.source_template % kind(click.Command(""), {}, "ompbind", "_OMPBIND_COMPLETE").source_vars()
    text = re.split(r"\n(?:if \[\[ \$zsh_eval_context|compdef )", text)[0]
    for click_has, is_needed in ((" -U", ""), ('string split ","', 'string split -m 1 ","')):
        text = text.replace(click_has, is_needed)  # keep --option= before a value; values may have commas
    return text + own.rstrip("\n")


EXAMPLES = (
    ("In ~/.bashrc", 'eval "$(ompbind completion bash)"'),
    ("In ~/.zshrc", 'eval "$(ompbind completion zsh)"'),
    ("In ~/.config/fish/config.fish", "ompbind completion fish | source"),
)


def completion(ctx: VerbContext) -> int:
    """Print the script with which bash, zsh or fish completes command lines of ompbind.

    The shell then completes verbs, options and their values, the names of live runs, and the command
    after --.
    """
    name = " ".join(ctx.params["words"])
    if name not in SHELLS:
        problem = f"{name!r} is no shell that ompbind knows" if name else "no shell is given"
        raise OptionError(problem, hint=f"write one of {', '.join(SHELLS)}")
    write_stdout(make_script(name))
    return 0


VERB = Verb(
    "completion",
    completion,
    summary="Print the script with which a shell completes command lines.",
    page="installation",
    examples=EXAMPLES,
    words="shell",
    complete_word=lambda _: tuple(SHELLS),
)
