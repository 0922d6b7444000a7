ALTER TABLE event_listeners ADD COLUMN narrow_fields TEXT DEFAULT '' NOT NULL;
ALTER TABLE event_listeners ADD COLUMN narrow_wanted TEXT DEFAULT '' NOT NULL;
DROP TRIGGER discriminators_follow;
CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules WHEN OLD.trigger_document IS NOT NEW.trigger_document BEGIN UPDATE event_listeners SET fields = '', wanted = '', narrow_fields = '', narrow_wanted = '' WHERE schedule = NEW.key; END;
CREATE INDEX event_listeners_by_narrow_discriminator ON event_listeners (tenant, event_type, narrow_fields, narrow_wanted, schedule);
