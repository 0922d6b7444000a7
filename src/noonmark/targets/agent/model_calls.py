"""Calls of a model by one turn: reserved before, settled after, and none once the run has ended.

An error that says that nothing was done is waited out, and the call is made again: it is no attempt. After an answer
that was lost, or cannot be read, the next call has an id of its own: what is reserved for the lost one stays reserved.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)

from noonmark.core.agents.bounds import text_tokens
from noonmark.core.budgets.budget import Refused, Reservation
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, to_text
from noonmark.targets.agent.first_call import first_call_id
from noonmark.targets.agent.models import key_variable
from noonmark.targets.loop_runner import pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from noonmark.core.instants import Micros
    from noonmark.ports.agent_host import AgentTurn
    from noonmark.ports.store import Store
    from noonmark.targets.agent.models import LoadedModel
    from noonmark.targets.agent.prices import PriceList
    from noonmark.targets.agent.settings import ProviderLimit
    from noonmark.targets.agent.store_calls import StoreCalls

SETTLE_SECONDS = 5
"""How long a turn that is stopped waits for a reservation that is under way."""
MAX_LOST = 3
"""The number of lost or unreadable answers in a row that ends an attempt."""
FIRST_WAIT, MAX_WAIT = SECOND // 2, 60 * SECOND
"""How long to wait for a provider that does not say, and at the most where it does."""
MAX_ERROR = 1_000
MIN_REPORTED_WAIT: Micros = SECOND
"""A run that waits shorter than this does not report it."""


class CallRefused(Exception):
    """No budget lets the call be made."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.what)
        self.refused = refused


class LeaseLost(Exception):
    """Another node has the turn, or the run has ended."""


class CallFailed(Exception):
    """The provider did not answer, or refused to."""

    def __init__(self, message: str, own_words: str, *, is_final: bool = False, retry_after: Micros = 0) -> None:
        super().__init__(message)
        self.own_words, self.is_final, self.retry_after = own_words, is_final, retry_after


@frozen
class Answer:
    """An answer, and what it used."""

    call_id: str
    response: ModelResponse
    usage: Usage


@frozen
class Request:
    """What a model is asked."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    input_tokens: int
    """Estimated from above."""
    max_output_tokens: int

    @property
    def tokens(self) -> int:
        """The most that the call can use."""
        return self.input_tokens + self.max_output_tokens


class _Verdict(Enum):
    WAIT = auto()
    """The provider did nothing, and may be asked again."""
    LOST = auto()
    """It may have answered."""
    REJECTED = auto()
    """It refuses the request, now and later."""


class ModelCalls:
    """The calls of one delivery. Once it is closed, it refuses to call the model."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a part of a call
        self,
        store: Store,
        calls: StoreCalls,
        prices: PriceList,
        limit: ProviderLimit | None,
        now: Callable[[], Micros],
        turn: AgentTurn,
        model: LoadedModel,
        *,
        has_first: bool,
    ) -> None:
        """With `has_first`, the first call takes over what admission has reserved."""
        self._store, self._calls, self._prices, self._limit = store, calls, prices, limit
        self._now, self._turn, self._model = now, turn, model
        self._has_first, self._number = has_first, 0
        self._is_closed = False
        self.unmade: str | None = None
        """The id of a call that is reserved, and was certainly not made."""

    def close(self) -> None:
        """Call the model no more: the run has ended."""
        self._is_closed = True

    async def request(self, request: Request) -> Answer:
        """Ask the model, and wait as long as its provider cannot answer."""
        call_id, lost, waits = self._next_id(), 0, 0
        while True:
            await self._reserve(call_id, request)
            await self._take_share(request.tokens)
            try:
                return self._answer(call_id, request, await self._ask(request))
            except LeaseLost:
                raise
            except UserError as error:
                await self._calls.run(self._store.give_back, self._turn.owner.tenant, [call_id])
                raise ValueError(f"the model {self._model.name.full} cannot be used: {error}") from None
            except Exception as error:  # noqa: BLE001 - a library that cannot read an answer may raise anything
                verdict, wait = _judge(error), _wait(error, waits)
                if verdict is not _Verdict.WAIT or not isinstance(error, ModelRateLimitError):
                    await self._note_failure(call_id, verdict)
                lost += verdict is _Verdict.LOST
                self.unmade = call_id if verdict is _Verdict.WAIT else None
                left = None if (end := self._turn.limits.deadline) is None else end - self._now()
                is_late = left is not None and wait >= left
                if verdict is _Verdict.REJECTED or lost >= MAX_LOST or is_late:
                    raise self._failure(error, verdict, wait) from None
                if verdict is _Verdict.LOST:
                    call_id = self._next_id()
            waits += 1
            await self._wait(wait, f"{self._model.name.provider} could not answer, and is asked again")

    async def _ask(self, request: Request) -> ModelResponse:
        if self._is_closed:
            raise LeaseLost
        self.unmade = None
        return await model_request(
            self._model.model,
            request.messages,
            model_settings=request.settings,
            model_request_parameters=request.parameters,
            instrument=False,
        )

    def _next_id(self) -> str:
        occurrence = self._turn.occurrence
        self._number += 1
        if self._has_first and self._number == 1:
            return first_call_id(occurrence.id)
        return f"{occurrence.id}/{occurrence.fence}/{self._number}"

    async def _reserve(self, call_id: str, request: Request) -> None:
        """Reserve the most that the call can use; near the end of a budget, slowly."""
        turn, name = self._turn, self._model.name
        cost = self._prices.most(name, request.input_tokens, request.max_output_tokens)
        reservation = Reservation(
            call_id=call_id,
            tenant=turn.owner.tenant,
            user=turn.owner.user,
            schedule_id=turn.schedule_id,
            session_id=turn.session_id,
            occurrence_id=turn.occurrence.id,
            fence=turn.occurrence.fence,
            model=name.full,
            provider=name.provider,
            most=Amount(tokens=request.tokens, cost=cost),
            limits=turn.limits.run,
            whole=turn.limits.whole,
            is_approved=turn.is_approved,
        )
        while True:
            self.unmade = call_id
            reserving = asyncio.ensure_future(self._calls.run(self._store.reserve, [reservation]))
            try:
                [reserved] = await asyncio.shield(reserving)
            except asyncio.CancelledError:
                # The store reserves it all the same; only what it has reserved can be given back.
                await asyncio.wait([reserving], timeout=SETTLE_SECONDS)
                reserving.cancel()
                raise
            if not isinstance(reserved, Refused):
                await self._wait(
                    reserved.delay, "calls are slowed down near the limit of a budget, and beyond a soft one"
                )
                return
            self.unmade = None
            if reserved.what == "breaker" and reserved.resets_at is not None:
                await self._wait_for_breaker(reserved.resets_at)
                continue
            if reserved.scope is None and reserved.what != "breaker":
                raise LeaseLost
            raise CallRefused(reserved)

    async def _wait_for_breaker(self, resets_at: Micros) -> None:
        wait = max(SECOND // 10, resets_at - self._now())
        if (deadline := self._turn.limits.deadline) is not None and self._now() + wait >= deadline:
            what = "the provider failed too often in a row, so it is not asked for a while"
            raise CallFailed(what, what, retry_after=wait)
        await self._wait(wait, "the provider failed too often in a row")

    async def _wait(self, wait: Micros, why: str) -> None:
        """Let the call wait, and say so if it takes longer than anyone would take for the model."""
        if wait < MIN_REPORTED_WAIT or self._turn.progress is None:
            await pause(wait)
            return
        self._turn.progress(f"it waits until {to_text(self._now() + wait)}: {why}")
        try:
            await pause(wait)
        finally:
            self._turn.progress("")

    async def _take_share(self, tokens: int) -> None:
        """Wait until the limits of the provider, which the nodes share, have room for the call."""
        for what, limit, by_token in [] if self._limit is None else self._limit.buckets():
            wanted = min(tokens, limit.burst) if by_token else 1
            while True:
                taken = await self._calls.run(
                    self._store.take_tokens, f"provider:{self._model.name.provider}:{what}", limit, wanted
                )
                wanted -= taken.granted
                if wanted <= 0:
                    break
                wait = min(5 * SECOND, max(taken.wait, wanted * limit.cost))
                await self._wait(wait, f"the limit of {self._model.name.provider} has no room ({what})")

    async def _note_failure(self, call_id: str, verdict: _Verdict) -> None:
        """Give back what was certainly not used; count a failure of the provider."""
        owner = self._turn.owner
        if verdict is _Verdict.REJECTED:
            await self._calls.run(self._store.give_back, owner.tenant, [call_id])
        else:
            await self._calls.run(self._store.provider_failed, owner.tenant, owner.user)

    def _answer(self, call_id: str, request: Request, response: ModelResponse) -> Answer:
        """What the provider says was used; a provider that says nothing is taken to have used what was estimated."""
        reported, name = response.usage, self._model.name
        cached = reported.cache_read_tokens + reported.cache_write_tokens
        usage = Usage(
            model=name.full,
            provider=name.provider,
            input_tokens=max(0, reported.input_tokens - cached),
            output_tokens=reported.output_tokens,
            cache_read_tokens=reported.cache_read_tokens,
            cache_write_tokens=reported.cache_write_tokens,
            model_calls=1,
            tool_calls=len(response.tool_calls),
        )
        if not usage.total_tokens and not name.is_free:
            written = sum(text_tokens(str(part)) for part in response.parts)
            usage = replace(
                usage, input_tokens=request.input_tokens, output_tokens=min(written, request.max_output_tokens)
            )
        return Answer(call_id, response, replace(usage, cost=self._prices.cost(name, usage)))

    def _failure(self, error: Exception, verdict: _Verdict, wait: Micros) -> CallFailed:
        name = self._model.name
        if isinstance(error, ModelAuthenticationError):
            what = f"the provider {name.provider} refused the key in {key_variable(name.provider)}"
        elif not isinstance(error, ModelAPIError):
            what = f"the answer of {name.full} could not be read"
        else:
            status = f" ({error.status_code})" if isinstance(error, ModelHTTPError) else ""
            what = f"{name.full} could not be called: {type(error).__name__}{status}"
        detail = self._model.masked(str(error))[:MAX_ERROR]
        return CallFailed(
            f"{what}: {detail}",
            what,
            is_final=verdict is _Verdict.REJECTED,
            retry_after=wait if verdict is _Verdict.WAIT else 0,
        )


def _judge(error: Exception) -> _Verdict:
    if isinstance(error, ModelQuotaExceededError):
        return _Verdict.REJECTED
    if isinstance(error, ModelRateLimitError | ModelUnavailableError | ModelServerError):
        return _Verdict.WAIT
    if isinstance(error, ModelConnectionError):
        return _Verdict.WAIT if error.phase in ("pool", "connect") else _Verdict.LOST
    if isinstance(error, ModelHTTPError):
        status = error.status_code
        waits = status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
        return _Verdict.WAIT if waits or status >= HTTPStatus.INTERNAL_SERVER_ERROR else _Verdict.REJECTED
    return _Verdict.LOST


def _wait(error: Any, waits: int) -> Micros:
    """How long to wait before the model is asked again."""
    retry_after: float | None = getattr(error, "retry_after", None)
    if retry_after is None:
        return min(MAX_WAIT // 2, FIRST_WAIT << min(waits, 10))
    return min(MAX_WAIT, int(retry_after * SECOND))
