ALTER TABLE event_listeners ADD COLUMN narrow_fields TEXT COLLATE "C" DEFAULT '' NOT NULL;
ALTER TABLE event_listeners ADD COLUMN narrow_wanted TEXT COLLATE "C" DEFAULT '' NOT NULL;
CREATE OR REPLACE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format($x$UPDATE %I.event_listeners SET fields = '', wanted = '', narrow_fields = '', narrow_wanted = '' WHERE schedule = $1$x$, TG_TABLE_SCHEMA) USING NEW.key; RETURN NULL; END $$;
CREATE INDEX event_listeners_by_narrow_discriminator ON event_listeners (tenant, event_type, narrow_fields, narrow_wanted, schedule);
