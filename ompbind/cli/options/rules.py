"""Find the options that have no effect because of other options.

The rule of an option is a predicate on the values of all options. It objects if the option has no effect, and
names the other option that prevents it. `apply_rules` decides whether this is an error.
"""

from __future__ import annotations

from ompbind.cli.options.option import Option
from ompbind.cli.options.values import Values

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from ompbind.cli.options.objection import Objection
    from ompbind.cli.options.option import Rule


def has_objections(values: Values) -> bool:
    """Return whether any option that is given has no effect because of another option."""
    return any(find_objection(values, values.options[name]) for name in values.given)


def find_objection(values: Values, option: Option) -> Objection | None:
    """Return why an option that is given has no effect; None if it has an effect."""
    if not matters(values, option):
        return None
    other = next((name for name in option.excludes if values[name]), None)
    if other:
        from ompbind.cli.options.objection import CONTRADICT, Objection  # late: few options contradict others

        return Objection(other=other, text=CONTRADICT)
    return import_rule(option.rule)(values) if option.rule else None


def matters(values: Values, option: Option) -> bool:
    """Return whether an option has another value than its default."""
    return values.is_given(option.name) and values[option.name] != option.default_value


def import_rule(name: str) -> Rule:
    """Return the rule with a name such as `running_rules.check_output`; few command lines need its module."""
    module, _, function = name.partition(".")
    # not importlib, which takes time to import
    rules = __import__(f"ompbind.cli.options.{module}", fromlist=[function])
    rule: Rule = getattr(rules, function)
    return rule
