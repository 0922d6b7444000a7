"""The embedded host: turns of agents in this process, with the models of pydantic-ai.

A session is what its store has: each turn reads it, and records each step before the next one. So a turn that was cut
off goes on from its last message on any node: an answer that is on record is not asked for again, and only tools
without a result are called again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters

from noonmark.core.agents.bounds import (
    json_tokens,
    message_tokens,
    recent_messages,
    text_tokens,
    tool_calls,
    tool_loop,
    tool_results,
)
from noonmark.core.agents.messages import action_message, message_text
from noonmark.core.agents.session import Role, SessionState
from noonmark.core.budgets.reservation import refusal_text
from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionTarget
from noonmark.ports.agent_host import Probe, Readiness, TurnResult
from noonmark.ports.budgets import Settled
from noonmark.targets.agent.mcp_tools import ServerAway, open_mcp_tools
from noonmark.targets.agent.model_calls import CallFailed, CallRefused, LeaseLost, ModelCalls, Request
from noonmark.targets.agent.models import ModelLoader, model_settings
from noonmark.targets.agent.prices import PriceList
from noonmark.targets.agent.skills import load_skills
from noonmark.targets.agent.store_calls import UNAVAILABLE, StoreCalls
from noonmark.targets.agent.structured_output import ACCEPTED, ASK_AGAIN, NOT_RUN, TOOL, OutputSchema
from noonmark.targets.agent.tools import Toolbox, make_tools
from noonmark.targets.agent.transcript import answered, corrected, to_model, tool_result
from noonmark.targets.log_filter import silence_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic_ai.tools import Tool

    from noonmark.core.agents.session import Message, Session
    from noonmark.core.instants import Micros
    from noonmark.core.targets import Target
    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.ports.agent_host import AgentTurn
    from noonmark.ports.store import Store
    from noonmark.targets.agent.mcp_tools import McpTool
    from noonmark.targets.agent.models import LoadedModel
    from noonmark.targets.agent.settings import AgentSettings
    from noonmark.targets.secrets import SecretResolver

LIBRARIES = ("anthropic", "genai_prices", "httpcore2", "httpx2", "openai", "pydantic_ai")
PAGE = 200


class EmbeddedHost:
    """Carries out turns in this process. Create it in the thread whose loop runs them."""

    def __init__(
        self, store: Store, settings: AgentSettings, secrets: SecretResolver | None, now: Callable[[], Micros]
    ) -> None:
        self.store, self.settings, self.now = store, settings, now
        self.calls = StoreCalls()
        self.prices = PriceList(settings.prices)
        self._models = ModelLoader(settings.models, settings.model, secrets)
        self._tools: dict[str, Tool[None]] = {}

    async def deliver(self, turn: AgentTurn) -> TurnResult:
        """Carry out a turn."""
        run = _TurnRun(self, turn)
        try:
            result = await run.carry_out()
        except LeaseLost:
            return TurnResult(outcome=Outcome.LEASE_LOST)
        except CallRefused as refusal:
            why = refusal_text(refusal.refused)
            result = TurnResult(
                outcome=Outcome.FAILED, reason=Reason.BUDGET_EXCEEDED, error=why, own_words=why, is_final=True
            )
        except CallFailed as failure:
            result = TurnResult(
                outcome=Outcome.FAILED,
                error=str(failure),
                own_words=failure.own_words,
                is_final=failure.is_final,
                retry_after=failure.retry_after,
            )
        except ServerAway as away:
            result = TurnResult(outcome=Outcome.DELIVERY_FAILED, error=str(away), own_words=away.own_words)
        except ValueError as problem:
            result = TurnResult(
                outcome=Outcome.FAILED, error=str(problem), own_words="the turn could not go on", is_final=True
            )
        finally:
            await run.close()
        if result.outcome is not Outcome.COMPLETED:
            await self.cancel(turn)
        return replace(result, usage=await self.calls.run(self.store.run_usage, turn.occurrence.id))

    def probe(self, tenant: str, target: Target) -> Probe:
        """Whether a session could take a turn now."""
        if isinstance(target, SessionTarget):
            session = self.store.session(tenant, target.session_id)
            if session is None:
                return Probe(readiness=Readiness.MISSING, detail=f"there is no session {target.session_id!r}")
            is_busy = session.state is SessionState.ACTIVE
            return Probe(readiness=Readiness.BUSY if is_busy else Readiness.READY)
        return Probe(readiness=Readiness.READY if isinstance(target, OnDemandSessionTarget) else Readiness.UNKNOWN)

    async def cancel(self, turn: AgentTurn) -> None:
        """Note that a turn was interrupted before the agent had answered."""
        tenant, session_id = turn.owner.tenant, turn.session_id
        last = await self.calls.run(self.store.messages, tenant, session_id, 1, newest_first=True)
        if last and not _is_answer(last[0]):
            await self.calls.run(self.store.set_session_state, tenant, session_id, SessionState.SUSPENDED)

    async def close(self) -> None:
        """Close all connections."""
        await self._models.close()
        self.calls.close()

    def tools(self) -> Mapping[str, Tool[None]]:
        """The tools so far; the schema of each is made once."""
        if len(self._tools) != len(self.settings.tools):
            self._tools = make_tools(self.settings.tools)
        return self._tools

    async def load_model(self, turn: AgentTurn, session: Session) -> LoadedModel:
        """The model of a session."""
        model = await self.calls.run(self._models.load, turn.owner.tenant, session.spec)
        await self._models.open(model)
        if not self.settings.logs_content:
            silence_libraries(*LIBRARIES)
        return model


class _TurnRun:
    """One delivery of a turn."""

    def __init__(self, host: EmbeddedHost, turn: AgentTurn) -> None:
        self._host, self._turn = host, turn
        self._calls: ModelCalls | None = None
        self._messages: list[Message] = []
        """What the session has, as far as it is sent, and all of this turn."""
        self._has_asked = False
        """Whether the last answer came in this delivery."""
        self._is_fresh = False

    async def close(self) -> None:
        """Make no more calls; give back the reservation of a call that was not made."""
        if self._calls is not None:
            self._calls.close()
            if self._calls.unmade is not None:
                await self._host.calls.run(self._host.store.give_back, self._turn.owner.tenant, [self._calls.unmade])

    async def carry_out(self) -> TurnResult:
        """Take one step after the other until the agent has answered."""
        host, turn = self._host, self._turn
        session = await self._open_session()
        if session is None:
            return self._missing()
        await self._begin()
        policy = turn.tool_access_policy or session.tool_access_policy
        self._schema = OutputSchema(session.spec.output_schema) if session.spec.output_schema else None
        model = await host.load_model(turn, session)
        self._calls = ModelCalls(
            host.store,
            host.calls,
            host.prices,
            host.settings.provider_limits.get(model.name.provider),
            host.now,
            turn,
            model,
            has_first=self._is_fresh,
        )
        servers, logs_content = host.settings.mcp_servers, host.settings.logs_content
        async with open_mcp_tools(servers, policy, logs_content=logs_content) as mcp, model.model:
            self._tools = await self._toolbox(session, policy, mcp)
            while (result := await self._advance(session)) is None:
                pass
        return result

    async def _toolbox(self, session: Session, policy: ToolAccessPolicy | None, mcp: Mapping[str, McpTool]) -> Toolbox:
        """Functions of the program, tools of MCP servers, and those for schedules where the session has them."""
        host, turn = self._host, self._turn
        schedules = host.settings.schedule_tools
        if schedules is None or not session.spec.enable_schedule:
            return Toolbox(host.tools(), policy, mcp=mcp)
        call_own = partial(schedules.call, turn, session)
        described = await host.calls.run(schedules.descriptions, turn, session)
        return Toolbox(host.tools(), policy, described, call_own, mcp)

    async def _open_session(self) -> Session | None:
        """The session, created if the turn may do that; None if it is missing."""
        host, turn = self._host, self._turn
        tenant = turn.owner.tenant
        session = await host.calls.run(host.store.session, tenant, turn.session_id)
        if session is None and turn.create is not None:
            await host.calls.run(host.store.put_session, turn.create)
            session = await host.calls.run(host.store.session, tenant, turn.session_id)
        if session is not None and session.state is SessionState.ARCHIVED and not turn.revives:
            return None
        return session

    def _missing(self) -> TurnResult:
        why = f"there is no session {self._turn.session_id!r} to talk to"
        return TurnResult(
            outcome=Outcome.DELIVERY_FAILED, reason=Reason.TARGET_MISSING, error=why, own_words=why, is_final=True
        )

    async def _begin(self) -> None:
        """Record what the agent is told, unless that was done before; then read what the session has."""
        host, turn = self._host, self._turn
        own = await self._own_messages()
        self._is_fresh = not own
        instructions = (*turn.history, action_message(turn.action))
        begun = await host.calls.run(host.store.begin_turn, turn.turn, instructions)
        if begun is None:
            raise LeaseLost
        if not own:
            first, occurrence_id = begun.messages - len(instructions) + 1, turn.occurrence.id
            own = [replace(one, number=at, occurrence_id=occurrence_id) for at, one in enumerate(instructions, first)]
        self._messages = [*await self._earlier_messages(own[0].number), *own]

    async def _own_messages(self) -> list[Message]:
        host, turn = self._host, self._turn
        messages: list[Message] = []
        while True:
            page = await host.calls.run(
                host.store.messages,
                turn.owner.tenant,
                turn.session_id,
                PAGE,
                after=messages[-1].number if messages else 0,
                occurrence_id=turn.occurrence.id,
            )
            messages.extend(page)
            if len(page) < PAGE:
                return messages

    async def _earlier_messages(self, before: int) -> list[Message]:
        """As many messages before this turn as may be sent, and a few more."""
        host, turn = self._host, self._turn
        messages: list[Message] = []
        tokens = 0
        while before > 1 and tokens <= host.settings.max_history_tokens:
            page = await host.calls.run(
                host.store.messages, turn.owner.tenant, turn.session_id, PAGE, before=before, newest_first=True
            )
            page = [message for message in page if message.occurrence_id != turn.occurrence.id]
            messages.extend(page)
            if len(page) < PAGE:
                break
            before = page[-1].number
            tokens += sum(message_tokens(message) for message in page)
        return messages[::-1]

    @property
    def _own(self) -> list[Message]:
        """The messages since the agent was told what this turn is about. A fork has copies of others before that."""
        own = [message for message in self._messages if message.occurrence_id == self._turn.occurrence.id]
        at = max((at for at, message in enumerate(own) if message.role in (Role.USER, Role.EVENT)), default=0)
        return own[at:]

    async def _advance(self, session: Session) -> TurnResult | None:
        """Take one step; the result once the agent has answered, or must not go on."""
        own = self._own
        if (problem := tool_loop(own)) is not None:
            return _ended(Reason.TOOL_LOOP, problem)
        if self._has_asked and not _is_answer(own[-1]) and await self._was_paused():
            why = "the schedule was paused, so the agent was stopped between two steps"
            return TurnResult(outcome=Outcome.CANCELLED, reason=Reason.PAUSED, error=why, own_words=why)
        at = next((at for at in range(len(own) - 1, -1, -1) if own[at].role is Role.ASSISTANT), None)
        if at is None:
            await self._ask(session)
            return None
        answer, after = own[at], own[at + 1 :]
        calls = list(tool_calls([answer]))
        done = {result["id"] for result in tool_results(after)}
        if self._schema is not None:
            return await self._advance_to_output(session, answer, calls, done, after)
        if not calls:
            return await self._conclude(session, answer)
        return await self._run_tools([call for call in calls if call["id"] not in done], session)

    async def _was_paused(self) -> bool:
        """Whether the schedule was paused after the turn began. One that was paused before is run by hand."""
        host, turn = self._host, self._turn
        stored = await host.calls.run(host.store.find, turn.owner.tenant, turn.schedule_id)
        if stored is None or stored.schedule.phase is not SchedulePhase.PAUSED or stored.schedule.pause is None:
            return False
        return stored.schedule.pause.at > (turn.occurrence.started or turn.occurrence.due)

    async def _conclude(self, session: Session, answer: Message) -> TurnResult | None:
        """A plain answer ends the turn. One that says nothing does not: the next attempt asks again."""
        text = message_text(answer)
        if text:
            return TurnResult(outcome=Outcome.COMPLETED, text=text)
        if self._has_asked:
            return _failed("the model gave no answer; perhaps max_tokens is too low for it")
        await self._ask(session)
        return None

    async def _advance_to_output(
        self,
        session: Session,
        answer: Message,
        calls: Sequence[Mapping[str, Any]],
        done: set[str],
        after: Sequence[Message],
    ) -> TurnResult | None:
        schema = self._schema
        assert schema is not None  # noqa: S101 - the caller has checked
        final = next((call for call in calls if call["name"] == TOOL), None)
        problem = None
        if final is not None:
            output = schema.output(final["arguments"])
            problem = schema.problem(output)
            if problem is None:
                open_calls = [call for call in calls if call["id"] not in done]
                if open_calls:
                    await self._append(
                        [tool_result(call, ACCEPTED if call is final else NOT_RUN) for call in open_calls]
                    )
                return TurnResult(outcome=Outcome.COMPLETED, text=message_text(answer) or None, output=output)
            if final["id"] not in done:
                await self._append([tool_result(final, f"does not match: {problem}", is_error=True)])
                done.add(final["id"])
        elif not calls and not after:
            problem = "it answered in plain text"
            await self._append([corrected(ASK_AGAIN)])
        if problem is not None and self._has_asked and self._misfits() >= self._allowed_misfits(session):
            return _failed(f"the answer does not match output_schema: {problem}")
        return await self._run_tools([call for call in calls if call["id"] not in done], session)

    def _misfits(self) -> int:
        """How many answers of the turn did not match the schema."""
        own = self._own
        results = [one for one in tool_results(own) if one["name"] == TOOL and one.get("is_error")]
        return len(results) + sum(message.role is Role.SYSTEM for message in own)

    def _allowed_misfits(self, session: Session) -> int:
        return (session.spec.structured_output_retries + 1) * max(1, self._turn.occurrence.attempt)

    async def _run_tools(self, calls: Sequence[Mapping[str, Any]], session: Session) -> TurnResult | None:
        """Call the tools that have no result yet, or else ask the model what follows."""
        if not calls:
            await self._ask(session)
            return None
        most = self._turn.limits.max_tool_calls
        call_count = sum(call["name"] != TOOL for call in tool_calls(self._own))
        if most is not None and call_count > most:
            return _ended(Reason.BUDGET_EXCEEDED, f"the run may call {most:,} tools, and asked for {call_count:,}")
        for call in calls:
            output = await self._tools.call(call["name"], call["arguments"], call["id"])
            await self._append([tool_result(call, output.content, is_error=output.is_error)])
        return None

    async def _ask(self, session: Session) -> None:
        """Ask the model, and record its answer together with what it used."""
        host, turn, calls = self._host, self._turn, self._calls
        assert calls is not None  # noqa: S101 - it is set before the first step
        spec = session.spec
        sent = recent_messages(self._messages, most=host.settings.max_history_tokens, occurrence_id=turn.occurrence.id)
        instructions = self._instructions(session)
        tools = self._tools.definitions
        outputs = [] if self._schema is None else [self._schema.tool]
        size = sum(map(message_tokens, sent)) + sum(map(text_tokens, instructions))
        size += sum(
            json_tokens([tool.name, tool.description, tool.parameters_json_schema]) for tool in (*tools, *outputs)
        )
        deadline, most = turn.limits.deadline, spec.max_tokens or host.settings.max_output_tokens
        left = None if deadline is None else max(1.0, (deadline - host.now()) / SECOND)
        request = Request(
            messages=to_model(sent),
            settings=model_settings(spec, most, left),
            parameters=ModelRequestParameters(
                function_tools=tools,
                output_tools=outputs,
                output_mode="text" if self._schema is None else "tool",
                allow_text_output=self._schema is None,
                instruction_parts=[InstructionPart(content="\n\n".join(instructions))] if instructions else None,
            ),
            input_tokens=size,
            max_output_tokens=most,
        )
        answer = await calls.request(request)
        settled = Settled(call_id=answer.call_id, tenant=turn.owner.tenant, usage=answer.usage)
        await self._append([answered(answer.response, answer.usage)], settles=[settled])
        self._has_asked = True

    def _instructions(self, session: Session) -> list[str]:
        """What the agent is told besides the messages: of the session, of the action, of the turn."""
        spec, action, settings = session.spec, self._turn.action, self._host.settings
        prompt, skills, more = spec.system_prompt, list(spec.preload_skills), list(spec.additional_instructions)
        if isinstance(action, PromptAction):
            prompt = action.system_prompt or prompt
            skills += action.skill_refs
            more += action.additional_instructions
        return [
            text for text in (prompt, *load_skills(settings.skills, skills), *more, *self._turn.instructions) if text
        ]

    async def _append(self, messages: Sequence[Message], *, settles: Sequence[Settled] = ()) -> None:
        """Record messages under the fence. A store that was away may have recorded them: then they are read."""
        host, turn = self._host, self._turn
        before = max((message.number for message in self._messages), default=0)
        while True:
            try:
                added = await host.calls.once(host.store.append_messages, turn.turn, messages, settles=settles)
                break
            except NoonmarkError as error:
                if error.code != UNAVAILABLE:
                    raise
            recorded = [message for message in await self._own_messages() if message.number > before]
            if recorded:
                added = recorded
                break
        if added is None:
            raise LeaseLost
        self._messages.extend(added)


def _is_answer(message: Message) -> bool:
    """Whether the agent has the last word in it: an answer, or an accepted output."""
    if message.role is Role.TOOL:
        return any(part["name"] == TOOL and not part.get("is_error") for part in message.parts)
    return message.role is Role.ASSISTANT and not any(tool_calls([message]))


def _ended(reason: Reason, why: str) -> TurnResult:
    return TurnResult(outcome=Outcome.FAILED, reason=reason, error=why, own_words=why, is_final=True)


def _failed(why: str) -> TurnResult:
    return TurnResult(outcome=Outcome.FAILED, error=why, own_words="the answer of the model cannot be used")
