"""Mutants: the memory store with one of its conditions taken out, each of which the simulation has to notice."""

from dataclasses import replace

from noonmark.stores.memory import admission, events, plan_writes, slots
from noonmark.stores.memory.nodes import Register


def without_fence(patch):
    """Whoever settles or admits an occurrence is taken for its holder."""
    settle, admit = admission.settle, admission.admit

    def settle_anyway(uow, settlement):
        row = uow.rows.get(settlement.occurrence.id)
        fence = settlement.occurrence.fence if row is None else row.occurrence.fence
        return settle(uow, replace(settlement, occurrence=replace(settlement.occurrence, fence=fence)))

    def admit_anyway(uow, admission, **times):
        row, claim = uow.rows.get(admission.claim.occurrence.id), admission.claim
        fence = claim.occurrence.fence if row is None else row.occurrence.fence
        believed = replace(claim, occurrence=replace(claim.occurrence, fence=fence))
        return admit(uow, replace(admission, claim=believed), **times)

    patch.setattr(admission, "settle", settle_anyway)
    patch.setattr(admission, "admit", admit_anyway)


def without_slot(patch):
    """A start takes the slot from whoever holds it."""
    take = slots.take

    def take_anyway(uow, row, start):
        state = uow.state_of(row)
        if start.takes_slot and state.holder is not None and state.holder is not row:
            holder, state.holder = state.holder, None
            holder.occurrence = replace(holder.occurrence, holds_slot=False)
        return take(uow, row, start)

    patch.setattr(slots, "take", take_anyway)


def without_watermark(patch):
    """A plan is written, whatever was planned since it was made."""
    patch.setattr(plan_writes, "_version", lambda schedule, watermark: (schedule.phase,))


def without_term(patch):
    """Whoever takes the lead takes it under the term of whoever had it."""
    lead = Register.lead

    def lead_anyway(register, node, **times):
        before = register.term
        taken = lead(register, node, **times)
        if before:
            register.term = before
            register.leadership = taken = replace(taken, term=before)
        return taken

    patch.setattr(Register, "lead", lead_anyway)


def without_cursor(patch):
    """Whatever was decided about an event is written as if it were the first that waits, from its first listener on."""
    commit = events.commit

    def commit_anyway(uow, reaction):
        audience = reaction.audience
        stream = uow.streams[audience.tenant]
        if not stream.waiting:
            return False
        believed = replace(audience, event=stream.waiting[0], cursor=stream.cursor)
        return commit(uow, replace(reaction, audience=believed))

    patch.setattr(events, "commit", commit_anyway)
