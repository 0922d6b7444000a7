"""Mutants: the memory store with one of its conditions taken out, each of which the simulation has to notice."""

from dataclasses import replace

from noonmark.stores.memory import admitting, events, places, planning
from noonmark.stores.memory.nodes import Register


def without_fence(patch):
    """Whoever settles or admits an occurrence is taken for its holder."""
    settle, admit = admitting.settle, admitting.admit

    def settle_anyway(ledger, settlement):
        row = ledger.rows.get(settlement.occurrence.id)
        fence = settlement.occurrence.fence if row is None else row.occurrence.fence
        return settle(ledger, replace(settlement, occurrence=replace(settlement.occurrence, fence=fence)))

    def admit_anyway(ledger, admission, **times):
        row, claim = ledger.rows.get(admission.claim.occurrence.id), admission.claim
        fence = claim.occurrence.fence if row is None else row.occurrence.fence
        believed = replace(claim, occurrence=replace(claim.occurrence, fence=fence))
        return admit(ledger, replace(admission, claim=believed), **times)

    patch.setattr(admitting, "settle", settle_anyway)
    patch.setattr(admitting, "admit", admit_anyway)


def without_slot(patch):
    """A start takes the slot from whoever holds it."""
    take = places.take

    def take_anyway(ledger, row, start):
        sheet = ledger.sheet_of(row)
        if start.takes_slot and sheet.holder is not None and sheet.holder is not row:
            holder, sheet.holder = sheet.holder, None
            holder.occurrence = replace(holder.occurrence, holds_slot=False)
        return take(ledger, row, start)

    patch.setattr(places, "take", take_anyway)


def without_watermark(patch):
    """A plan is written, whatever was planned since it was made."""
    patch.setattr(planning, "_version", lambda schedule, watermark: (schedule.phase,))


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

    def commit_anyway(ledger, reaction):
        audience = reaction.audience
        stream = ledger.streams[audience.tenant]
        if not stream.waiting:
            return False
        believed = replace(audience, event=stream.waiting[0], cursor=stream.cursor)
        return commit(ledger, replace(reaction, audience=believed))

    patch.setattr(events, "commit", commit_anyway)
