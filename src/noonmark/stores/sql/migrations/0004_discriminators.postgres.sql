ALTER TABLE event_listeners ADD COLUMN fields TEXT COLLATE "C" DEFAULT '' NOT NULL;
ALTER TABLE event_listeners ADD COLUMN wanted TEXT COLLATE "C" DEFAULT '' NOT NULL;
ALTER TABLE event_listeners DROP CONSTRAINT event_listeners_pkey;
ALTER TABLE event_listeners ADD CONSTRAINT event_listeners_pkey PRIMARY KEY (schedule, event_type);
DROP INDEX event_listeners_by_schedule;
CREATE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format($x$UPDATE %I.event_listeners SET fields = '', wanted = '' WHERE schedule = $1$x$, TG_TABLE_SCHEMA) USING NEW.key; RETURN NULL; END $$;
CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules FOR EACH ROW WHEN (OLD.trigger_document IS DISTINCT FROM NEW.trigger_document) EXECUTE FUNCTION forget_discriminator();
CREATE INDEX event_listeners_by_discriminator ON event_listeners (tenant, event_type, fields, wanted, schedule);
