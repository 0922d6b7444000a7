"""The remote host: turns are carried out by a service that a team runs, over an HTTP protocol of ours.

`POST {base}/deliver` sends a turn, `{base}/probe` asks whether a target can take one, `{base}/cancel` stops one. All
three are signed as the requests of HTTP targets are. Work that takes long is accepted with 202 and ends by a callback.
The service is the operator's own, so egress rules do not apply to it.

The service holds the limits of a run, so the whole of them is reserved before the run, and settled with what the
service reports. If it reports nothing, the run counts in full.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2

from noonmark.core.agents.messages import action_message, message_text, text_part
from noonmark.core.agents.session import Message, Role, SessionState
from noonmark.core.agents.tasks import remote_agent
from noonmark.core.agents.turns import reservation_id
from noonmark.core.budgets.budget import Refused, Reservation
from noonmark.core.budgets.reported import read_reports, total
from noonmark.core.budgets.reservation import refusal_text
from noonmark.core.budgets.spend import Amount, Usage, to_dollars
from noonmark.core.documents import present
from noonmark.core.errors import NoonmarkError
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text
from noonmark.core.json_values import json_problem, shown
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.core.signatures import signature
from noonmark.core.targets import TaskTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.urls import parse_url
from noonmark.ports.agent_host import Probe, Readiness, TurnResult
from noonmark.ports.budgets import Settled
from noonmark.targets.agent.resolve import REMOTE_MODEL
from noonmark.targets.agent.store_calls import StoreCalls
from noonmark.targets.http.delivery import ACCEPTED_VALUES, BROKEN_CONNECTION, GATEWAY_STATUSES
from noonmark.targets.http.errors import describe_error
from noonmark.targets.http.network import Resolver, system_lookup
from noonmark.targets.http.pool import ConnectionPool
from noonmark.targets.http.request import USER_AGENT, Request, callback_headers, signing_keys
from noonmark.targets.http.response import retry_after, status_text
from noonmark.targets.log_filter import silence_this_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.budgets.budget import RunLimits
    from noonmark.core.instants import Micros
    from noonmark.core.targets import Target
    from noonmark.ports.agent_host import AgentTurn
    from noonmark.ports.store import Store
    from noonmark.targets.http.request import SigningKeys
    from noonmark.targets.http.response import Response
    from noonmark.targets.http.settings import HttpTargetSettings

PROBE = "probe"
"""What requests that belong to no occurrence are signed with."""
PROBE_SECONDS = 5.0
CANCEL_SECONDS = 5.0
MAX_ERROR = 2_000
REASONS = {str(one): one for one in (Reason.BUDGET_EXCEEDED, Reason.TOOL_LOOP)}
"""The ends that a service may name."""


@frozen
class _Answer:
    """What a service says of a turn that it has carried out."""

    result: TurnResult
    usage: Usage | None = None
    is_refused: bool = False
    """It was not begun: nothing was used."""


class RemoteHost:
    """Sends turns to a service. The coroutines run on the loop of the agent runner."""

    def __init__(self, base_url: str, store: Store, settings: HttpTargetSettings, now: Callable[[], Micros]) -> None:
        """The URL may end with a slash; ValueError says what is wrong with it."""
        self._base = base_url.rstrip("/")
        parse_url(self._base)
        self._store, self._settings, self._now = store, settings, now
        self._calls = StoreCalls()
        self._pool: ConnectionPool | None = None
        self._own_key: bytes | None = None

    async def deliver(self, turn: AgentTurn) -> TurnResult | Accepted:
        """Send a turn, and record its answer; or accept that its end is reported later."""
        result = await self._deliver(turn)
        if isinstance(result, TurnResult) and result.outcome not in (Outcome.COMPLETED, Outcome.LEASE_LOST):
            await self._calls.run(self._suspend, turn)
        return result

    async def _deliver(self, turn: AgentTurn) -> TurnResult | Accepted:
        begun = await self._calls.run(self._begin, turn)
        if begun is not None:
            return begun
        call_id = await self._calls.run(self._reserve, turn)
        if not isinstance(call_id, str):
            return call_id
        started = self._now()
        try:
            limits = await self._calls.run(self._limits, turn)
            request = await self._calls.once(self._request, "deliver", turn, _deliver_document(turn, limits))
            response = await self._send(request)
        except NoonmarkError as error:
            await self._calls.run(self._give_back, turn, call_id)
            return _failed(f"the turn could not be sent: {error}", outcome=Outcome.DELIVERY_FAILED)
        except BROKEN_CONNECTION as error:
            return await self._calls.run(self._connection_failed, turn, call_id, error)
        if _is_accepted(response):
            return Accepted(started=started, accepted=self._now(), deadline=turn.limits.deadline)
        return await self._calls.run(self._record, turn, call_id, self._read(response))

    def probe(self, tenant: str, target: Target) -> Probe:
        """Ask whether a target could take a turn now. It blocks."""
        document = {"tenant": tenant, "agent": _agent(target), "target": target.to_document()}
        try:
            request = self._signed("probe", tenant, PROBE, document)
            response = httpx2.post(
                f"{self._base}/probe",
                content=request.body,
                headers=request.headers,
                timeout=PROBE_SECONDS,
                trust_env=False,
            )
            answer = response.json() if response.status_code == HTTPStatus.OK else None
        except (httpx2.HTTPError, ValueError, RecursionError, NoonmarkError) as error:
            return Probe(readiness=Readiness.UNKNOWN, detail=f"the remote host did not answer: {type(error).__name__}")
        if response.status_code == HTTPStatus.NOT_FOUND:
            return Probe(readiness=Readiness.MISSING)
        if not isinstance(answer, dict) or answer.get("readiness") not in frozenset(Readiness):
            return Probe(readiness=Readiness.UNKNOWN, detail="the answer of the remote host has no readiness")
        return Probe(readiness=Readiness(answer["readiness"]), detail=str(answer.get("detail") or "")[:MAX_ERROR])

    async def cancel(self, turn: AgentTurn) -> None:
        """Ask the service to stop a turn; whether it answers does not matter."""
        await self._calls.run(self._suspend, turn)
        document = _identity(turn)
        with suppress(NoonmarkError, TimeoutError, *BROKEN_CONNECTION, httpcore2.TimeoutException):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._send(await self._calls.once(self._request, "cancel", turn, document))

    async def close(self) -> None:
        """Close all connections."""
        self._calls.close()
        if self._pool is not None:
            await self._pool.close()

    # The session, and what is reserved

    def _begin(self, turn: AgentTurn) -> TurnResult | None:
        """Put what the agent is sent on record; the result, if the turn has ended before or cannot begin."""
        if turn.create is not None:
            self._store.put_session(turn.create)
        session = self._store.session(turn.owner.tenant, turn.session_id)
        if session is None or (session.state is SessionState.ARCHIVED and not turn.revives):
            return _missing(f"there is no session {turn.session_id!r} to talk to")
        history = () if session.messages else turn.history
        messages = [*history, replace(action_message(turn.action), occurrence_id=turn.occurrence.id)]
        if self._store.begin_turn(turn.turn, messages) is None:
            return TurnResult(outcome=Outcome.LEASE_LOST)
        answer = self._answer(turn)
        if answer is None:
            return None
        # It had ended, and only its end was not written.
        text = message_text(answer)
        return TurnResult(outcome=Outcome.COMPLETED, text=text, output=answer.data, usage=self._usage(turn))

    def _answer(self, turn: AgentTurn) -> Message | None:
        """The answer of the turn, if it is on record."""
        last = self._store.messages(
            turn.owner.tenant, turn.session_id, 1, occurrence_id=turn.occurrence.id, newest_first=True
        )
        return last[0] if last and last[0].role is Role.ASSISTANT else None

    def _reserve(self, turn: AgentTurn) -> str | TurnResult:
        """Reserve all that the run may still use; the id of the reservation, or the result if there is no room.

        Deliveries share it until the service has reported what it used: then the next one has its own.
        """
        used, limits = self._usage(turn), self._limits(turn)
        # With nothing left, one more than nothing is asked for, and refused.
        tokens = 0 if limits.max_tokens is None else max(1, limits.max_tokens - (used.total_tokens if used else 0))
        cost = None if limits.max_cost is None else max(1, limits.max_cost - ((used.cost or 0) if used else 0))
        number = 1
        while True:
            call_id = reservation_id(turn.occurrence.id, number)
            reservation = Reservation(
                call_id=call_id,
                tenant=turn.owner.tenant,
                user=turn.owner.user,
                schedule_id=turn.schedule_id,
                session_id=turn.session_id,
                occurrence_id=turn.occurrence.id,
                fence=turn.occurrence.fence,
                model=_model(turn),
                provider=None,
                most=Amount(tokens=tokens, cost=cost),
                limits=limits,
                whole=turn.limits.whole,
                is_approved=turn.is_approved,
            )
            [answer] = self._store.reserve([reservation])
            if not isinstance(answer, Refused):
                return call_id
            if answer.what != "settled":
                return self._refused(turn, answer)
            number += 1

    def _limits(self, turn: AgentTurn) -> RunLimits:
        """What the occurrence may use: its own limits, and what the other steps of its workflow run have left."""
        own, whole = turn.limits.run, turn.limits.whole
        if whole is None:
            return own
        used, of_all = self._usage(turn) or Usage(), self._store.run_usage(whole.occurrence_id) or Usage()
        left = whole.limits
        return replace(
            own,
            max_cost=_least(own.max_cost, left.max_cost, (of_all.cost or 0) - (used.cost or 0)),
            max_tokens=_least(own.max_tokens, left.max_tokens, of_all.total_tokens - used.total_tokens),
            max_model_calls=_least(own.max_model_calls, left.max_model_calls, of_all.model_calls - used.model_calls),
        )

    def _refused(self, turn: AgentTurn, refused: Refused) -> TurnResult:
        if refused.scope is None:
            return TurnResult(outcome=Outcome.LEASE_LOST)
        why = refusal_text(refused)
        return replace(_failed(why), reason=Reason.BUDGET_EXCEEDED, is_final=True, usage=self._usage(turn))

    def _suspend(self, turn: AgentTurn) -> None:
        """Note that a turn ended before the agent had answered, unless another one has begun since."""
        session = self._store.session(turn.owner.tenant, turn.session_id)
        if session is None or session.turn not in (None, turn.occurrence.id):
            return
        last = self._store.messages(turn.owner.tenant, turn.session_id, 1, newest_first=True)
        if last and last[0].role is not Role.ASSISTANT:
            self._store.set_session_state(turn.owner.tenant, turn.session_id, SessionState.SUSPENDED)

    def _usage(self, turn: AgentTurn) -> Usage | None:
        return self._store.run_usage(turn.occurrence.id)

    def _give_back(self, turn: AgentTurn, call_id: str) -> None:
        self._store.give_back(turn.owner.tenant, [call_id])

    def _connection_failed(self, turn: AgentTurn, call_id: str, error: Exception) -> TurnResult:
        """Before the connection was open nothing was sent; afterwards it is unknown what the service did."""
        was_not_sent = isinstance(error, httpcore2.ConnectError)
        if was_not_sent:
            self._give_back(turn, call_id)
        what = "no connection to" if was_not_sent else "connection lost to"
        why = f"{what} the remote host at {parse_url(self._base).origin}: {describe_error(error)}"
        return replace(_failed(why), is_unknown=not was_not_sent, usage=self._usage(turn))

    def _record(self, turn: AgentTurn, call_id: str, answer: _Answer) -> TurnResult:
        """Put the answer on record, and settle what was reserved with what the service says it used."""
        result, settles = answer.result, []
        if answer.usage is not None:
            settles.append(Settled(call_id=call_id, tenant=turn.owner.tenant, usage=answer.usage))
        if result.outcome is Outcome.COMPLETED:
            message = Message(
                role=Role.ASSISTANT,
                parts=(text_part(_text(result)),),
                data=result.output,
                occurrence_id=turn.occurrence.id,
                usage=answer.usage,
            )
            # A store that was away may have recorded it.
            is_recorded = self._answer(turn) is not None
            if not is_recorded and self._store.append_messages(turn.turn, [message], settles=settles) is None:
                return TurnResult(outcome=Outcome.LEASE_LOST)
        elif settles:
            self._store.settle_calls(settles)
        elif answer.is_refused:
            self._give_back(turn, call_id)
        return replace(result, usage=self._usage(turn))

    # The requests

    async def _send(self, request: Request) -> Response:
        if self._pool is None:
            silence_this_thread()
            tls, resolver = httpcore2.default_ssl_context(), Resolver(self._settings.resolve or system_lookup)
            self._pool = ConnectionPool(None, tls, resolver)
        return await self._pool.send(request, may_repeat=True)

    def _request(self, what: str, turn: AgentTurn, document: dict[str, Any]) -> Request:
        request = self._signed(what, turn.owner.tenant, turn.idempotency_key, document)
        headers = request.headers | present(traceparent=turn.traceparent)
        if what == "deliver":
            token_key = self._keys(turn.owner.tenant).token_key
            headers |= callback_headers(self._settings.public_url, token_key, turn.occurrence)
        return replace(request, headers=headers)

    def _signed(self, what: str, tenant: str, key: str, document: dict[str, Any]) -> Request:
        """A request, signed over the time, the idempotency key and the body."""
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "Noonmark-Signature": signature(self._keys(tenant).key, at=self._now(), occurrence_id=key, body=body),
        }
        return Request(method="POST", url=parse_url(f"{self._base}/{what}"), headers=headers, body=body)

    def _keys(self, tenant: str) -> SigningKeys:
        if self._own_key is None:
            self._own_key = self._store.own_key()
        return signing_keys(self._settings.keys, self._own_key, tenant)

    def _read(self, response: Response) -> _Answer:
        """What an answer means."""
        if response.status == HTTPStatus.NOT_FOUND:
            return _Answer(_missing("the remote host does not know this agent or session"), is_refused=True)
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            why = f"the remote host answered {status_text(response.status)}"
            may_follow = response.status == HTTPStatus.CONFLICT or _DEFAULTS.retries(response.status)
            result = replace(
                _failed(why),
                is_final=not may_follow,
                is_unknown=response.status in GATEWAY_STATUSES,
                retry_after=retry_after(response.headers.get("retry-after", ""), now=self._now()),
            )
            return _Answer(result, is_refused=response.status < HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            return _read_answer(_json(response))
        except ValueError as error:
            why = f"the answer of the remote host cannot be used: {error}"
            return _Answer(replace(_failed(why), is_unknown=True))


_DEFAULTS = HttpTarget(url="http://remote")
"""Which statuses are tried again is the same as for HTTP targets that say nothing else."""


def _identity(turn: AgentTurn) -> dict[str, Any]:
    return {
        "idempotency_key": turn.idempotency_key,
        "tenant": turn.owner.tenant,
        "schedule_id": turn.schedule_id,
        "occurrence_id": turn.occurrence.id,
        "session_id": turn.session_id,
    }


def _least(own: int | None, of_all: int | None, used_by_others: int) -> int | None:
    """The lower of two limits, the second without what others have used of it; None is not limited."""
    left = None if of_all is None else max(0, of_all - used_by_others)
    return min((one for one in (own, left) if one is not None), default=None)


def _deliver_document(turn: AgentTurn, run: RunLimits) -> dict[str, Any]:
    """The body of a delivery."""
    create, policy = turn.create, turn.tool_access_policy
    if policy is None and create is not None:
        policy = create.tool_access_policy
    return _identity(turn) | {
        "user": turn.owner.user,
        "attempt": turn.occurrence.attempt,
        "nominal_at_utc": to_text(turn.occurrence.nominal),
        "agent": _agent(turn.target),
        "target": turn.target.to_document(),
        "action": turn.action.to_document(),
        "create": None if create is None else create.spec.to_document(),
        "instructions": list(turn.instructions),
        "tool_access_policy": None if policy is None else policy.to_document(),
        "history": [{"role": str(one.role), "parts": list(one.parts)} for one in turn.history],
        "limits": {
            "max_cost_usd": None if run.max_cost is None else to_dollars(run.max_cost),
            "max_tokens": run.max_tokens,
            "max_model_calls": run.max_model_calls,
            "max_tool_calls": turn.limits.max_tool_calls,
            "deadline_utc": None if turn.limits.deadline is None else to_text(turn.limits.deadline),
        },
        "is_approved": turn.is_approved,
    }


def _agent(target: Target) -> str | None:
    """The agent that a task names."""
    return remote_agent(target.context) if isinstance(target, TaskTarget) else None


def _model(turn: AgentTurn) -> str:
    return REMOTE_MODEL if turn.create is None else turn.create.spec.model


def _is_accepted(response: Response) -> bool:
    """Whether the service reports the end of the turn later."""
    value = response.headers.get("noonmark-callback", "").strip().lower()
    return response.status == HTTPStatus.ACCEPTED and value in ACCEPTED_VALUES


def _json(response: Response) -> dict[str, Any]:
    if response.is_cut:
        raise ValueError("it is longer than 64 KiB")
    try:
        document = json.loads(response.body)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError(f"it must be an object, not {shown(document)}")
    if (problem := json_problem(document)) is not None:
        raise ValueError(f"it {problem}")
    return document


def _read_answer(document: dict[str, Any]) -> _Answer:
    """Read `{"text"?, "output"?, "usage"?}`, or `{"error", "reason"?, "retry"?, "usage"?}`."""
    given, error, text = document.get("usage"), document.get("error"), document.get("text")
    try:
        usage = None if given is None else total(read_reports(given))
    except ValueError as problem:
        raise ValueError(f"usage: {problem}") from None
    if error is not None:
        reason = REASONS.get(str(document.get("reason")))
        is_final = reason is not None or document.get("retry") is False
        return _Answer(replace(_failed(str(error)[:MAX_ERROR], words=""), reason=reason, is_final=is_final), usage)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"text must be a text, not {shown(text)}")
    if text is None and document.get("output") is None:
        raise ValueError("it has neither a text, an output nor an error")
    return _Answer(TurnResult(outcome=Outcome.COMPLETED, text=text, output=document.get("output")), usage)


def _text(result: TurnResult) -> str:
    """The answer as text, for the transcript."""
    return json.dumps(result.output, ensure_ascii=False, indent=2) if result.text is None else result.text


def _failed(why: str, *, outcome: Outcome = Outcome.FAILED, words: str | None = None) -> TurnResult:
    """A failure in our own words, or with those of the service, which logs do not repeat."""
    return TurnResult(outcome=outcome, error=why, own_words=why if words is None else words)


def _missing(why: str) -> TurnResult:
    return replace(_failed(why, outcome=Outcome.DELIVERY_FAILED), reason=Reason.TARGET_MISSING, is_final=True)
