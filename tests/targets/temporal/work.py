"""What workers call in these tests, and what it leaves in this process."""

import threading

BEGUN, CALLS, GATES = [], [], {}
NAME = "tests.targets.temporal.work:call"


def call(what, *args, context, **kwargs):
    """One function for all of it: each route has a task queue of its own."""
    return globals()[what](*args, context=context, **kwargs)


def add(a=1, b=2, *, context):
    return a + b


def fail(*, context):
    raise KeyError("missing")


def flaky(*, context):
    """Fails in its first attempt."""
    if context.attempt == 1:
        raise OSError("away")
    return context.attempt


def hold(gate, *, context):
    """Runs until its gate is opened, or it is asked to stop."""
    BEGUN.append(context.occurrence_id)
    event = GATES.setdefault(gate, threading.Event())
    while not event.is_set():
        if context.cancelled.wait(0.02):
            raise InterruptedError("stopped")
    return gate


def note(text, *, context):
    CALLS.append((text, context.occurrence_id))
    return text


def items(*, context):
    return ["a", "b", "c"]


def large(gate=None, *, context):
    """A result that is almost as large as one may be."""
    if gate is not None:
        hold(gate, context=context)
    return ["x" * 100] * 600


def count(*lists, context):
    return sum(map(len, lists))


def spend_and_hold(tokens, gate, *, context):
    spend(tokens, context=context)
    return hold(gate, context=context)


def spend(tokens, *, context):
    context.report_usage(model="gpt", provider="openai", input_tokens=tokens, output_tokens=0)
    return tokens
