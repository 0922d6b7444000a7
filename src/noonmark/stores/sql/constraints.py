"""Guards: what the databases themselves see to, whoever writes.

A node of an older version, which goes on during an upgrade, changes the filters of an event trigger and knows nothing
of discriminators. With the old one the trigger would not be found for what it wants now. So a trigger that changes
loses it, is shown every event of its type, and gets another when a node that knows of them writes it.
"""

from __future__ import annotations

_CHANGED = "AFTER UPDATE OF trigger_document ON schedules"
_FORGET = "UPDATE {}event_listeners SET fields = '', wanted = '' WHERE schedule = {}"
# Each on one line: a semicolon at the end of one would be taken for the end of all.
_SQLITE = f"""
    CREATE TRIGGER discriminators_follow {_CHANGED} WHEN OLD.trigger_document IS NOT NEW.trigger_document
    BEGIN {_FORGET.format("", "NEW.key")}; END
"""
_FUNCTION = f"""
    CREATE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format($x${_FORGET.format("%I.", "$1")}$x$, TG_TABLE_SCHEMA) USING NEW.key; RETURN NULL; END $$
"""
_POSTGRES = f"""
    CREATE TRIGGER discriminators_follow {_CHANGED}
    FOR EACH ROW WHEN (OLD.trigger_document IS DISTINCT FROM NEW.trigger_document)
    EXECUTE FUNCTION forget_discriminator()
"""


def stale_discriminators(dialect: str) -> list[str]:
    """The statements that let go of the discriminator of a trigger that changes."""
    statements = [_FUNCTION, _POSTGRES] if dialect == "postgresql" else [_SQLITE]
    return [" ".join(one.split()) for one in statements]
