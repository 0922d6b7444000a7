"""The command target: a program and its arguments, started without a shell."""

from __future__ import annotations

from dataclasses import asdict, field
from posixpath import normpath
from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.documents import present
from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown, text_of
from noonmark.core.secret import secret_name

if TYPE_CHECKING:
    from noonmark.core.documents import Reader


MAX_ARGUMENTS = 1_000
MAX_VARIABLES = 1_000
MAX_STDIN = 262_144
MAX_MEMORY_MB = 1_048_576
MAX_CPU_SECONDS = 31_622_400
LEAST_MEMORY_MB = 16
"""With less, hardly any program can be loaded."""
MAX_NICE = 19

_argument = text_of(0, 131_072, multiline=True)
_variable_text = text_of(1, 255)


@frozen(kw_only=True)
class CommandLimits:
    """Resource limits of a program; None for no limit."""

    memory_mb: int | None = None
    """Address space of each of its processes."""
    cpu_seconds: int | None = None
    """Time on a processor, of each of its processes."""
    nice: int | None = None
    """The niceness of its processes: 0 to 19."""

    def to_document(self) -> dict[str, Any]:
        """What is limited."""
        return present(**asdict(self))


NO_LIMITS = CommandLimits()


@frozen(kw_only=True)
class CommandTarget:
    """A program and its arguments, started without a shell."""

    kind: ClassVar[str] = "command"
    route: ClassVar[str] = "command"

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret_env: dict[str, str] = field(default_factory=dict, hash=False)
    """The names of secrets, by variable."""
    cwd: str | None = None
    stdin: str | None = field(default=None, repr=False)
    """What it reads, word for word, instead of the payload."""
    payload: Any = field(default=None, hash=False, repr=False)
    """What it reads as JSON, unless an event or the call that asked for the run brings its own."""
    limits: CommandLimits = NO_LIMITS

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            argv=list(self.argv),
            env=dict(self.env) or None,
            secret_env=dict(self.secret_env) or None,
            cwd=self.cwd,
            stdin=self.stdin,
            payload=self.payload,
            limits=self.limits.to_document() or None,
        )


def read_command(reader: Reader) -> CommandTarget:
    """Read the program, its environment, where it starts, what it reads and what it may use."""
    before = len(reader.problems)
    argv = reader.each("argv", _argument, high=MAX_ARGUMENTS)
    if len(reader.problems) == before and not (argv and argv[0]):
        reader.problem("argv", "must be an array that starts with the name of a program")
    env = reader.text_map("env", key=variable_name, value=_argument, high=MAX_VARIABLES)
    secret_env = reader.text_map("secret_env", key=variable_name, value=secret_name, high=MAX_VARIABLES)
    for variable in sorted(env.keys() & secret_env.keys()):
        reader.problem(f"secret_env.{variable}", "is also in env: give one of them")
    return CommandTarget(
        argv=argv,
        env=env,
        secret_env=secret_env,
        cwd=reader.text("cwd", None, high=4_096),
        stdin=reader.read("stdin", text_of(0, MAX_STDIN, multiline=True), None),
        payload=reader.json("payload"),
        limits=_limits(reader),
    )


def _limits(reader: Reader) -> CommandLimits:
    if reader.raw("limits") is None:
        return NO_LIMITS
    fields = reader.child("limits")
    limits = CommandLimits(
        memory_mb=fields.integer("memory_mb", None, low=LEAST_MEMORY_MB, high=MAX_MEMORY_MB),
        cpu_seconds=fields.integer("cpu_seconds", None, low=1, high=MAX_CPU_SECONDS),
        nice=fields.integer("nice", None, high=MAX_NICE),
    )
    fields.close()
    return limits


def variable_name(value: object) -> str:
    """The name of an environment variable; ValueError for anything else."""
    name = _variable_text(value)
    if "=" in name:
        raise ValueError("must not contain =")
    return name


def end_of_program(code: int) -> str:
    """How a program ended, in words: its exit code, or less than 0 for the signal that killed it."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


ANY = "*"
OWN_PREFIX = "NOONMARK_"
TOLD = frozenset(
    {
        "NOONMARK_OCCURRENCE_ID",
        "NOONMARK_SCHEDULE_ID",
        "NOONMARK_NOMINAL_TIME",
        "NOONMARK_ATTEMPT",
        "NOONMARK_EVENT_ID",
        "NOONMARK_EVENT_TYPE",
        "NOONMARK_RUN_ID",
        "NOONMARK_NODE",
        "NOONMARK_CHAIN",
        "NOONMARK_REASON",
        "NOONMARK_BUNDLE_ID",
        "NOONMARK_BUNDLE_DIGEST",
        "NOONMARK_DISPATCH_FILE",
    }
)
"""Variables about the run, which callers cannot set."""


@frozen(kw_only=True)
class CommandRules:
    """The rules of one node for commands of callers."""

    env: frozenset[str] = frozenset()
    """Variables that they may set; a star means any."""
    folders: tuple[str, ...] = ()
    """Folders in and below which their programs may start."""
    reserved: frozenset[str] = frozenset()
    """Variables that Noonmark itself reads, such as those of its settings: an allowed script may call `noonmark`."""
    programs: frozenset[str] | None = None
    """The programs that the node runs for callers; None if that is not known, or any."""

    def env_problem(self, name: str) -> str | None:
        """Why callers may not set this variable; None if they may."""
        if name in TOLD:
            return "is set by Noonmark for every run"
        is_own = name.startswith(OWN_PREFIX) and name not in self.reserved
        if is_own or name in self.env or ANY in self.env:
            return None
        return f"callers may not set {shown(name)}; to allow it, start the server with --allow-env {name}"

    def cwd_problem(self, cwd: str) -> str | None:
        """Why callers may not start a program in this folder, judged by its name; the node checks links."""
        if not cwd.startswith("/"):
            return f"must be an absolute path, not {shown(cwd)}"
        if any(is_below(normpath(cwd), normpath(folder)) for folder in self.folders):
            return None
        return f"callers may not start programs in {shown(cwd)}: it is not below a folder that --allow-cwd names"


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it; both are absolute, without dots and links."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
