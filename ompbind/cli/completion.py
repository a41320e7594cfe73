"""`ompbind completion`: the scripts with which shells complete command lines, and how ompbind answers them.

A script sends the words up to the cursor in COMP_WORDS and the number of the word at the cursor in
COMP_CWORD. The answer has a line for each completion: a type, a comma, the value, and after a tab its help.
The types: `plain` is the word itself; `file`, `dir` and `command` have the shell complete names of files,
directories and commands. After `--` the shell completes the command line of the command, without ompbind.
"""

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

from ompbind.cli.console import write_stdout
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError

_BASH = r"""_ompbind_completion() {
    local current=${COMP_WORDS[COMP_CWORD]} command=$1 prefix= colon= kind value i
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            _ompbind_command $((i + 1))
            return
        fi
    done
    # where = is no word break, the word at the cursor has the option too
    if [[ $current == --*=* ]]; then prefix=${current%%=*}=; fi
    # where : is a word break, bash replaces only what follows it
    if [[ $current == : || ${COMP_WORDS[COMP_CWORD-1]} == : ]]; then colon=yes; fi
    # the path of ompbind is as typed, with its quotes
    if [[ $command == *[\\\'\"]* ]]; then command=$(xargs printf %s <<<"$command" 2>/dev/null); fi
    command=${command/#\~\//"$HOME/"}
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            command) _ompbind_command "$COMP_CWORD" ;;
            plain)
                value=${value%%$'\t'*}
                if [[ $colon ]]; then value=${value##*:}; fi
                COMPREPLY+=("$prefix$value")
                ;;
        esac
    done < <(IFS=$'\n'; COMP_WORDS="${COMP_WORDS[*]:0:COMP_CWORD+1}" COMP_CWORD=$COMP_CWORD \
        _OMPBIND_COMPLETE=bash_complete "$command" 2>/dev/null)
}

# Complete the command that begins at a word, if possible with the completion of that command.
_ompbind_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    else
        compopt -o default
        if ((COMP_CWORD == $1)); then
            mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
        fi
    fi
}

complete -o nosort -F _ompbind_completion ompbind
"""

_ZSH = r"""#compdef ompbind
_ompbind() {
    local -i at=${words[(ie)--]}
    if ((at < CURRENT)); then
        shift at words
        ((CURRENT -= at))
        _normal
        return
    fi
    local line kind value help
    local -a found
    found=("${(@f)$(COMP_WORDS="${(F)words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \
        _OMPBIND_COMPLETE=zsh_complete ${${(Q)words[1]}/#\~\//$HOME/} 2>/dev/null)}")
    if [[ ${words[CURRENT]} == --*=* ]]; then compset -P '*='; fi
    local -a plain
    for line in $found; do
        kind=${line%%,*} value=${${line#*,}%%$'\t'*} help=
        if [[ $line == *$'\t'* ]]; then help=${line#*$'\t'}; fi
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files ;;
            command) _command_names -e ;;
            plain) plain+=("${value//:/\\:}${help:+:$help}") ;;
        esac
    done
    if (($#plain)); then _describe -V completion plain; fi
}

if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _ompbind "$@"
else
    if ((! $+functions[compdef])); then
        autoload -Uz compinit
        compinit -i
    fi
    compdef _ompbind ompbind
fi
"""

_FISH = r"""function _ompbind_completion
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    if set -l at (contains -i -- -- $words)
        set -e words[1..$at]
        complete -C (string join ' ' -- (string escape -- $words) $current)
        return
    end
    set -l prefix (string match -r -- '^--[^=]*=' $current)
    set -lx COMP_WORDS (string join \n -- (string escape -- $words) $current | string collect)
    set -lx COMP_CWORD (count $words)
    set -l command $words[1]
    if string match -q -- '~/*' $command
        set command $HOME(string sub -s 2 -- $command)
    end
    for line in (_OMPBIND_COMPLETE=fish_complete $command 2>/dev/null)
        set -l kind (string split -m 1 , -- $line)
        switch $kind[1]
            case dir file
                set -l value (string replace -- "$prefix" '' $current)
                set -l found (__fish_complete_path "$value")
                if test $kind[1] = dir
                    set found (__fish_complete_directories "$value")
                end
                string replace -r -- '^' "$prefix" $found
            case command
                complete -C "$current"
            case plain
                echo "$prefix$kind[2]"
        end
    end
end

complete --no-files --command ompbind --arguments '(_ompbind_completion)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script of each shell."""

EXAMPLES = (
    ("In ~/.bashrc", 'eval "$(ompbind completion bash)"'),
    ("In ~/.zshrc", 'eval "$(ompbind completion zsh)"'),
    ("In ~/.config/fish/config.fish", "ompbind completion fish | source"),
)

HELP = """Print the script with which bash, zsh or fish completes command lines of ompbind.

The shell then completes verbs, options and their values, the names of live runs, and the command after --.
"""


def completion(ctx: click.Context) -> int:
    """Print the script of the shell that is given."""
    name = " ".join(ctx.params["words"])
    if name not in SCRIPTS:
        problem = f"{name!r} is no shell that ompbind knows" if name else "no shell is given"
        raise OptionError(problem, hint=f"write one of {', '.join(SCRIPTS)}")
    write_stdout(SCRIPTS[name].removesuffix("\n"))
    return 0


VERB = Verb(
    "completion",
    completion,
    help=HELP,
    summary="Print the script with which a shell completes command lines.",
    page="installation.md",
    examples=EXAMPLES,
    words="shell",
    complete_word=lambda _: tuple(SCRIPTS),
)


class _Completion(ShellComplete):
    """Completion for one of the shells; the scripts of all shells use the same protocol."""

    def source(self) -> str:
        """Return the script of the shell."""
        return SCRIPTS[self.name]

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor and the word at the cursor, without the name of ompbind."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        count = int(os.environ["COMP_CWORD"]) + 1
        *before, current = _join_values([*words, ""][:count])
        return before[1:], current

    def format_completion(self, item: CompletionItem) -> str:
        """Return the line of a completion."""
        help_text = " ".join((item.help or "").split())
        return f"{item.type},{item.value}" + (f"\t{help_text}" if help_text else "")


def _join_values(words: Sequence[str]) -> list[str]:
    """Join what bash has split: --strategy, =, ba → --strategy=ba; sample, :, epyc → sample:epyc."""
    joined: list[str] = []
    for word in words:
        if joined and (_is_split_at("=", joined[-1], word, "--") or _is_split_at(":", joined[-1], word)):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _is_split_at(mark: str, before: str, word: str, start: str = "") -> bool:
    return before.startswith(start) and (word == mark or before.endswith(mark))


def register() -> None:
    """Let click answer the scripts."""
    for name in SCRIPTS:
        add_completion_class(type(f"_{name}", (_Completion,), {"name": name}))
