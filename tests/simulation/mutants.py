"""Mutants: the rules of the stores with one condition removed; the simulation must detect each."""

from dataclasses import replace

from noonmark.stores.memory.nodes import NodeRegister
from noonmark.stores.rules import admission, events, plan_writes, slots


def without_fence(patch):
    """Whoever settles or admits an occurrence is taken for its holder."""
    settle, admit = admission._settle, admission._admit

    def settle_anyway(uow, settlement):
        row = uow.row(settlement.occurrence.id)
        fence = settlement.occurrence.fence if row is None else row.fence
        return settle(uow, replace(settlement, occurrence=replace(settlement.occurrence, fence=fence)))

    def admit_anyway(uow, admission, **times):
        row, claim = uow.row(admission.claim.occurrence.id), admission.claim
        fence = claim.occurrence.fence if row is None else row.fence
        believed = replace(claim, occurrence=replace(claim.occurrence, fence=fence))
        return admit(uow, replace(admission, claim=believed), **times)

    patch.setattr(admission, "_settle", settle_anyway)
    patch.setattr(admission, "_admit", admit_anyway)


def without_slot(patch):
    """A start takes the slot from whoever holds it."""
    busy = slots.busy

    def never_busy(uow, row, start):
        state = uow.state_of(row)
        holder = slots.slot_holder(uow, state)
        if start.takes_slot and holder is not None and holder is not row:
            state.holder, holder.holds_slot = None, 0
            uow.changed(holder)
        return busy(uow, row, start)

    patch.setattr(slots, "busy", never_busy)


def without_turns(patch):
    """What was caught up begins as soon as the slot is free."""
    busy = slots.busy
    patch.setattr(slots, "busy", lambda uow, row, start: busy(uow, row, replace(start, is_in_line=False)))


def without_watermark(patch):
    """A plan is written, whatever was planned since it was made."""
    patch.setattr(plan_writes, "_is_as_read", lambda state, snapshot: state.phase == snapshot.schedule.phase)


def without_term(patch):
    """Whoever takes the lead takes it under the term of whoever had it."""
    lead = NodeRegister.lead

    def lead_anyway(register, node, **times):
        before = register.term
        taken = lead(register, node, **times)
        if before:
            register.term = before
            register.leadership = taken = replace(taken, term=before)
        return taken

    patch.setattr(NodeRegister, "lead", lead_anyway)


def without_cursor(patch):
    """Whatever was decided about an event is written as if it were the first that waits, from its first listener on."""
    commit = events._commit

    def commit_anyway(uow, stream, states, reaction):
        if stream is None or not stream.waiting:
            return False
        event = replace(reaction.audience.event, emitted=stream.waiting[-1])
        believed = replace(reaction.audience, event=event, cursor=str(stream.cursor))
        return commit(uow, stream, states, replace(reaction, audience=believed))

    patch.setattr(events, "_commit", commit_anyway)
