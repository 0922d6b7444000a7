"""Other work than functions: programs that are started, requests that are sent, events that are emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Unpack

from noonmark.embedded.declaring import command_target, http_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePath

    from noonmark.embedded.declaring import HttpOptions, WorkOptions


class _Declares(Protocol):
    """What it needs of a scheduler."""

    def _declare_work(self, target: dict[str, Any], options: Mapping[str, Any]) -> str: ...


class OtherWork:
    """Schedules for what is not a Python function. The options are those of `schedule`."""

    def schedule_command(
        self: _Declares,
        argv: Sequence[str | PurePath],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        stdin: str | None = None,
        limits: Mapping[str, int] | None = None,
        **options: Unpack[WorkOptions],
    ) -> str:
        """Keep a schedule that starts a program and return its id.

        `argv` is the name or the absolute path of the program, and its arguments; no shell takes it apart. It has a
        clean environment with the variables of `env`, starts in the folder `cwd`, and reads the payload of its run as
        JSON, or else `stdin`. `limits` are `memory_mb`, `cpu_seconds` and `nice`. It has completed if its exit code is
        0. At its timeout, or when it is cancelled, it ends together with everything it has started.
        """
        return self._declare_work(command_target(argv, env, cwd, stdin=stdin, limits=limits), options)

    def schedule_http(  # noqa: PLR0913 - each is a part of the request
        self: _Declares,
        url: str,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
        body: Any = None,  # noqa: ANN401 - JSON
        expected_statuses: Sequence[int | str] | None = None,
        retry_statuses: Sequence[int | str] | None = None,
        completion_timeout_seconds: float | None = None,
        **options: Unpack[HttpOptions],
    ) -> str:
        """Keep a schedule that sends a request and return its id.

        It is a POST, unless `method` says otherwise. `body` is text, or anything else as JSON. In the body, the values
        of the `headers`, and the path and query of the URL, placeholders such as `{{occurrence_id}}` are filled in.
        The values of `secret_headers` are the names of secrets, which `set_secret` has sealed for the host of the URL.

        The answers of `expected_statuses` mean success, those of `retry_statuses` that it may be tried again: numbers,
        or classes such as `"5xx"`. The request may go wherever this process can reach, and `timeout` is for the whole
        of it, 30 seconds unless it is given. A receiver that takes the work over, where a server with a `public_url`
        sends the request, has `completion_timeout_seconds` to tell its end, a day unless it is given.
        """
        request = http_target(
            url,
            method=method,
            headers=headers,
            secret_headers=secret_headers,
            body=body,
            expected_statuses=expected_statuses,
            retry_statuses=retry_statuses,
            completion_timeout_seconds=completion_timeout_seconds,
        )
        return self._declare_work(request, options)

    def schedule_event(self: _Declares, event_type: str, **options: Unpack[WorkOptions]) -> str:
        """Keep a schedule that emits an event, with the payload as its own, and return its id."""
        return self._declare_work({"target_kind": "event", "event_type": event_type}, options)
