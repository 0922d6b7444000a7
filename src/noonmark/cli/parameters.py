"""Commands from functions: the annotations of a function are the arguments and options of its command.

A positional argument of the function is an argument of the command, a keyword argument is an option, and a dataclass
adds its fields as options. Click parses the words and completes them in a shell.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import click

from noonmark.cli.help import entry, paragraphs, value_of
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from click.shell_completion import CompletionItem

ARGUMENTS, OPTIONS = "Arguments", "Parameters"
"""The headings of arguments and options without a group."""
COMPLETION_VARIABLE = "_NOONMARK_COMPLETE"
"""Set by the script of a shell, which then asks what may follow the words so far."""
_NUMBER = re.compile(r"-[\d.]+", re.ASCII)


@frozen(kw_only=True)
class Parameter:
    """An argument or option: of several in one annotation, the last one that says something counts."""

    help: str | None = None
    name: str | tuple[str, ...] | None = None
    """The names of an option, or of an argument in the help; default: that of the function's argument."""
    group: Group | None = None
    value: str | None = None
    """What its value is, in the help; default: by the name of the option."""
    negative: tuple[()] | str | None = None
    """Empty if a flag cannot be negated with `--no-`."""
    show_default: bool | None = None
    consume_multiple: bool | None = None
    """Whether one option takes all words up to the next option."""
    allow_leading_hyphen: bool | None = None
    """Whether the next word is the value, even if it looks like an option."""
    complete: str | None = None
    """What a shell offers for it: `schedule` or `shell`."""


@frozen
class Group:
    """A heading in the help of a command."""

    name: str
    sort_key: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One argument or option of a command, and where its value goes."""

    dest: str
    owner: str
    """The argument of the function."""
    key: str | None
    """The field of the dataclass that is this argument; None if it is the value itself."""
    kind: type
    """str, int, bool, tuple or list."""
    parameter: Parameter
    default: Any
    is_positional: bool
    is_variadic: bool = False

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING and not self.is_variadic

    @property
    def is_repeatable(self) -> bool:
        """Whether it takes several values."""
        return self.is_variadic or self.kind in (tuple, list)

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Its names on the command line and in the help."""
        given = self.parameter.name or ()
        plain = (self.key or self.owner).strip("_")
        if self.is_positional:
            return (given,) if isinstance(given, str) else given or (plain.upper(),)
        names = (given,) if isinstance(given, str) else given or (f"--{plain.replace('_', '-')}",)
        return names if self.negation is None else (*names, self.negation)

    @property
    def negation(self) -> str | None:
        """The name that sets a flag to False."""
        if self.kind is not bool or self.is_positional or self.parameter.negative is not None:
            return None
        return f"--no-{(self.key or self.owner).replace('_', '-')}"

    @property
    def heading(self) -> Group:
        """The heading in the help."""
        return self.parameter.group or Group(
            ARGUMENTS if self.is_positional else OPTIONS, -1 if self.is_positional else 0
        )

    def value(self, given: Any) -> Any:
        """What was given, as the function takes it."""
        return self.kind(given) if self.is_repeatable and not self.is_variadic else given


Completer = Callable[[str, dict[str, Any], str], list[str]]
"""Completes a word of a kind, from the options that are given already and the beginning of the word."""


class FunctionCommand(click.Command):
    """A command that calls a function."""

    def __init__(self, name: str, function: Callable[..., int | None], usage: str | None, completer: Completer) -> None:
        self.completer = completer
        self.fields = tuple(_fields(function))
        self.function, self.usage = function, usage
        super().__init__(
            name,
            params=[self._parameter(field) for field in self.fields],
            help=inspect.getdoc(function),
            context_settings={"help_option_names": ["--help", "-h"], "allow_extra_args": True},
        )

    def _parameter(self, field: Field) -> click.Parameter:
        complete = _completion(self, field)
        if field.is_positional:
            many = -1 if field.is_variadic else 1
            return click.Argument(
                [field.dest], required=field.is_required, nargs=many, metavar=field.name, shell_complete=complete
            )
        if field.kind is bool:
            on = "/".join(filter(None, (field.names[0], field.negation)))
            return click.Option([field.dest, on], is_flag=True, default=None)
        return click.Option(
            [field.dest, *field.names],
            required=field.is_required,
            multiple=field.is_repeatable,
            type={int: click.INT, float: click.FLOAT}.get(field.kind, click.STRING),
            shell_complete=complete,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words. The number of extra ones is an error; they are not repeated, since one may be a secret."""
        words = args if ctx.resilient_parsing else list(self._expand_options(ctx, args))
        rest = super().parse_args(ctx, words)
        if rest and not ctx.resilient_parsing:
            raise ExtraArguments(rest, ctx)
        return rest

    def _expand_options(self, ctx: click.Context, words: list[str]) -> Iterator[str]:
        """The words with one option for each value. A word that looks like an option is not the value of another."""
        options = {name: field for field in self.fields if not field.is_positional for name in field.names}
        remaining = list(words)
        while remaining:
            word = remaining.pop(0)
            field = options.get(word)
            if field is None or field.kind is bool:
                yield word
                continue
            if not remaining or (_is_option(remaining[0]) and not field.parameter.allow_leading_hyphen):
                raise click.UsageError(f"{word} requires an argument.", ctx)
            yield from (word, remaining.pop(0))
            while field.parameter.consume_multiple and remaining and not _is_option(remaining[0]):
                yield from (word, remaining.pop(0))

    def invoke(self, ctx: click.Context) -> int:
        """Call the function."""
        return self.function(*self._positional(ctx), **self.keywords(ctx)) or 0

    def _positional(self, ctx: click.Context) -> list[Any]:
        values: list[Any] = []
        for field in self.fields:
            if field.is_positional:
                given = ctx.params[field.dest]
                values += given if field.is_variadic else [field.default if given is None else given]
        return values

    def keywords(self, ctx: click.Context) -> dict[str, Any]:
        """The options of a parsed command, as its function takes them."""
        given: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for field in self.fields:
            value = ctx.params[field.dest]
            if field.is_positional or value is None or value == ():
                continue
            if field.key is None:
                given[field.owner] = field.value(value)
            else:
                parts.setdefault(field.owner, {})[field.key] = field.value(value)
        kinds = _hints(self.function)
        return given | {owner: kinds[owner][0](**values) for owner, values in parts.items()}

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usage, what the command does, and its arguments and options under their headings."""
        usage = self.usage or f"Usage: {ctx.command_path} {' '.join(self._usage())}"
        lines = [usage, "", *paragraphs(self.help or "")]
        headings = sorted({field.heading for field in self.fields}, key=lambda group: (group.sort_key, group.name))
        for heading in headings:
            lines += ["", f"{heading.name}:"]
            for field in self.fields:
                if field.heading == heading:
                    lines += entry(_label(field), f"{field.parameter.help or ''}{_note(field)}")
        formatter.write("\n".join(lines) + "\n")

    def _usage(self) -> list[str]:
        required = [field for field in self.fields if field.is_required]
        return [
            *(f"{field.name} {_type(field)}" for field in required if not field.is_positional),
            "[OPTIONS]",
            *(_usage_word(field) for field in self.fields if field.is_positional),
        ]


class ExtraArguments(click.UsageError):
    """More arguments than the command takes."""

    def __init__(self, rest: Sequence[str], ctx: click.Context) -> None:
        count = len(rest)
        super().__init__(
            f"{count} {'argument' if count == 1 else 'arguments'} too many; see {ctx.command_path} --help", ctx
        )


class CommandGroup(click.Group):
    """Commands that are loaded when they are called."""

    def __init__(self, name: str, summary: str, load: dict[str, tuple[str, Callable[[], click.Command]]]) -> None:
        """`load` has the summary of each command, and what loads it."""
        super().__init__(
            name, help=summary, context_settings={"help_option_names": ["--help", "-h"]}, no_args_is_help=False
        )
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as Click calls it
        """The names of the commands."""
        return list(self._load)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as Click calls it
        """Load a command."""
        return self._load[cmd_name][1]() if cmd_name in self._load else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if nothing else is asked for."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest another one."""
        name = args[0]
        if name in self._load or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name.startswith("-"):
            raise click.NoSuchOption(name, ctx=ctx)
        raise click.UsageError(f'Unknown command "{name}".{suggestion(name, self._load)}', ctx)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usage, what the group is for, and its commands."""
        lines = [f"Usage: {ctx.command_path} COMMAND", "", *paragraphs(self.help or ""), "", "Commands:"]
        for name in sorted(self._load):
            lines += entry(name, self._load[name][0])
        if ctx.parent is None:
            lines += entry("--help, -h", "Display this message and exit.")
            lines += entry("--version", "Display application version.")
        formatter.write("\n".join(lines) + "\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so; no command is loaded for it."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=summary)
            for name, (summary, _) in self._load.items()
            if name.startswith(incomplete)
        ]


def suggestion(word: str, known: Iterable[str]) -> str:
    """A sentence that names the closest of the known words; nothing if none is close."""
    from difflib import get_close_matches

    names = {one.lstrip("-"): one for one in known}  # dashes would make short options alike
    close = get_close_matches(word.lstrip("-"), names, n=1)
    return f' Did you mean "{names[close[0]]}"?' if close else ""


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and _NUMBER.fullmatch(word) is None


def _hints(function: Any) -> dict[str, tuple[Any, Parameter]]:
    """The type of each argument or field, and what its annotation says."""
    return {name: _split(hint) for name, hint in get_type_hints(function, include_extras=True).items()}


def _split(hint: Any) -> tuple[Any, Parameter]:
    if get_origin(hint) is not Annotated:
        return hint, Parameter()
    kind, *parameters = get_args(hint)
    merged: dict[str, Any] = {}
    for each in parameters:
        merged |= {field.name: value for field in fields(each) if (value := getattr(each, field.name)) is not None}
    return kind, Parameter(**merged)


def _kind(hint: Any) -> type:
    """str, int, bool, tuple or list; of a union with None, the other one."""
    if get_origin(hint) in (Union, UnionType):
        [hint] = [part for part in get_args(hint) if part is not type(None)]
    kind: type = get_origin(hint) or hint
    return kind


def _fields(function: Callable[..., Any]) -> Iterator[Field]:
    hints = _hints(function)
    for argument in inspect.signature(function).parameters.values():
        kind, parameter = hints[argument.name]
        default = MISSING if argument.default is argument.empty else argument.default
        if is_dataclass(kind):
            inner = _hints(kind)
            for field in fields(kind):
                hint, each = inner[field.name]
                dest = f"{argument.name}__{field.name}"
                yield Field(dest, argument.name, field.name, _kind(hint), each, field.default, is_positional=False)
            continue
        is_variadic = argument.kind is argument.VAR_POSITIONAL
        is_positional = is_variadic or argument.kind is argument.POSITIONAL_ONLY
        yield Field(
            argument.name, argument.name, None, _kind(kind), parameter, default, is_positional, is_variadic=is_variadic
        )


def _completion(
    command: FunctionCommand, field: Field
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]] | None:
    complete = field.parameter.complete
    if complete is None:
        return None

    def complete_word(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
        from click.shell_completion import CompletionItem

        given = {each.names[0]: ctx.params.get(each.dest) for each in command.fields}
        return [CompletionItem(word) for word in command.completer(complete, given, incomplete)]

    return complete_word


def _type(field: Field) -> str:
    if field.kind is bool:
        return ""
    kind = field.parameter.value or value_of(field.names, "NUMBER" if field.kind in (int, float) else "TEXT")
    return f"{kind}..." if field.is_repeatable else kind


def _label(field: Field) -> str:
    names = ", ".join(field.names)
    return names if field.is_positional else f"{names} {_type(field)}".rstrip()


def _usage_word(field: Field) -> str:
    return field.name if field.is_required else f"[{field.name}]"


def _note(field: Field) -> str:
    """Whether it is required, or its default."""
    if field.is_required:
        return "" if field.is_positional else " Required."
    if field.parameter.show_default is False or field.default in (MISSING, None, "", (), False):
        return ""
    return f" Default: {field.default}."
