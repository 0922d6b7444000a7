"""Every error a caller can meet, as one tree with stable codes.

NoonmarkError
├── InvalidSchedule          invalid_schedule      (also ValueError)
│   ├── InvalidTrigger       invalid_trigger
│   │   └── TriggerNeverFires    trigger_never_fires
│   ├── InvalidBundle        invalid_bundle
│   ├── InvalidRequest       invalid_request
│   └── InvalidWorkflow      invalid_workflow
├── NotFound                 not_found             (also LookupError)
│   └── MethodNotFound       method_not_found
├── Conflict                 conflict
│   ├── OverlapConflict      overlap
│   ├── RevisionConflict     revision_conflict
│   ├── RunFailed            run_failed            (also RuntimeError)
│   └── KeyReused            idempotency_key_reused
├── QuotaExceeded            quota_exceeded
├── Unauthenticated          unauthenticated
├── NotAllowed               not_allowed
│   └── MissingScope         missing_scope
├── PayloadTooLarge          payload_too_large
├── AnswerTooLarge           answer_too_large
├── Unreachable              unreachable
├── StoreUnavailable         store_unavailable
├── PipelineError            pipeline_failed
└── MissingExtra             missing_extra         (also ImportError)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN_ALIASES = {"__mp_main__": "__main__"}
"""A worker process loads the main program under another name."""


def exception_names(kind: type[BaseException]) -> tuple[str, ...]:
    """The qualified names of an exception class and of its bases, the class first; built-in ones have no module."""
    return tuple(_name(base) for base in kind.__mro__ if base is not object)


def _name(kind: type) -> str:
    module = MAIN_ALIASES.get(kind.__module__, kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


@frozen
class Problem:
    """One thing wrong with a document: where, which code, and a sentence that says what is allowed."""

    field: str
    message: str
    code: str = "invalid_schedule"

    def __str__(self) -> str:
        """Read as one line of an error message."""
        return f"{self.field}: {self.message}" if self.field else self.message


class NoonmarkError(Exception):
    """The root: `code` is stable, `message` is for people, `field` is the place in the document, if there is one."""

    code: ClassVar[str] = "error"
    request_id: str | None = None
    """The name of the request in the log of the server that answered with the error."""

    def __init__(self, message: str, *, field: str = "") -> None:
        """Take the message and the field that it is about."""
        super().__init__(message)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        """Show the field first, so that a bare traceback already says where to look."""
        return f"{self.field}: {self.message}" if self.field else self.message


class InvalidSchedule(NoonmarkError, ValueError):
    """A document that is refused; `problems` lists everything wrong with it, not only the first thing."""

    code = "invalid_schedule"

    def __init__(self, message: str, *, field: str = "", problems: Sequence[Problem] = ()) -> None:
        """Without a list, the message itself is the one problem."""
        super().__init__(message, field=field)
        self.problems = tuple(problems) or (Problem(field, message, self.code),)


class InvalidTrigger(InvalidSchedule):
    """A trigger that cannot be understood."""

    code = "invalid_trigger"


class TriggerNeverFires(InvalidTrigger):
    """A trigger that is well formed but names no instant at all."""

    code = "trigger_never_fires"


class InvalidBundle(InvalidSchedule):
    """A bundle that is refused: its archive, or its manifest."""

    code = "invalid_bundle"


class InvalidRequest(InvalidSchedule):
    """A question that cannot be understood: its parameters, its cursor, or its JSON."""

    code = "invalid_request"


class InvalidWorkflow(InvalidSchedule):
    """A definition of a workflow that is refused; `problems` lists everything wrong with it."""

    code = "invalid_workflow"


def refusal(problems: Sequence[Problem]) -> InvalidSchedule:
    """The error for everything found wrong: as narrow a kind as all the problems share."""
    codes = {problem.code for problem in problems}
    kind: type[InvalidSchedule] = InvalidSchedule
    if codes == {InvalidRequest.code}:
        kind = InvalidRequest
    elif codes == {InvalidWorkflow.code}:
        kind = InvalidWorkflow
    elif codes == {TriggerNeverFires.code}:
        kind = TriggerNeverFires
    elif codes <= {InvalidTrigger.code, TriggerNeverFires.code}:
        kind = InvalidTrigger
    first, more = problems[0], len(problems) - 1
    message = f"{first.message} (and {more} more)" if more else first.message
    return kind(message, field=first.field, problems=problems)


class NotFound(NoonmarkError, LookupError):
    """The schedule, occurrence or run does not exist."""

    code = "not_found"


class MethodNotFound(NotFound):
    """The operation does not exist."""

    code = "method_not_found"


class Conflict(NoonmarkError):
    """The request is sound, but not in the present state."""

    code = "conflict"


class OverlapConflict(Conflict):
    """A run is still in flight and the overlap policy forbids a second one."""

    code = "overlap"


class RevisionConflict(Conflict):
    """Someone else changed the schedule since it was read."""

    code = "revision_conflict"


class RunFailed(Conflict, RuntimeError):
    """A run that the caller waited for did not complete, and there is no exception of a function to raise."""

    code = "run_failed"

    def __init__(self, message: str, *, field: str = "", result: object = None, step_id: str | None = None) -> None:
        """Take the result that the run left: the answer of a request, the output of a program.

        Of a workflow, it is the results of its completed steps, and `step_id` is the step that failed.
        """
        super().__init__(message, field=field)
        self.result, self.step_id = result, step_id


class KeyReused(Conflict):
    """An idempotency key was used again with another request."""

    code = "idempotency_key_reused"


class QuotaExceeded(NoonmarkError):
    """The owner's limit is reached."""

    code = "quota_exceeded"

    def __init__(
        self, message: str, *, field: str = "", limit: Mapping[str, str | int] | None = None, wait: float | None = None
    ) -> None:
        """Take the limit's name, scope, value and use, and after how many seconds to try again, if that is known."""
        super().__init__(message, field=field)
        self.limit, self.wait = limit, wait


class Unauthenticated(NoonmarkError):
    """The call has no key, or none that is good."""

    code = "unauthenticated"


class NotAllowed(NoonmarkError):
    """The caller may not do this."""

    code = "not_allowed"


class MissingScope(NotAllowed):
    """The caller's key does not have the scope that the operation needs."""

    code = "missing_scope"


class PayloadTooLarge(NoonmarkError):
    """More was sent than is read."""

    code = "payload_too_large"


class AnswerTooLarge(NoonmarkError):
    """The answer to a batch is too large; this part of it was not executed."""

    code = "answer_too_large"


class Unreachable(NoonmarkError):
    """No server answered; whether anything was done is not known."""

    code = "unreachable"


class StoreUnavailable(NoonmarkError):
    """The store did not answer; nothing is known to have changed."""

    code = "store_unavailable"


class PipelineError(NoonmarkError):
    """A stage failed, and no later one was begun."""

    code = "pipeline_failed"

    def __init__(self, stage: str | int, errors: list[BaseException]) -> None:
        """Say which stage it was, by its name or else by its number from 0 on, and what its functions raised."""
        first = f"{type(errors[0]).__name__}: {errors[0]}"
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        super().__init__(f"stage {stage!r} failed ({first}{more})")
        self.stage, self.errors = stage, errors


class MissingExtra(NoonmarkError, ImportError):
    """The packages of an optional extra are not installed; the message has the command that installs them."""

    code = "missing_extra"
