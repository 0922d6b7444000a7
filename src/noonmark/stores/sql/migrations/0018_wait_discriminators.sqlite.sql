ALTER TABLE step_waits ADD COLUMN fields TEXT DEFAULT '' NOT NULL;
ALTER TABLE step_waits ADD COLUMN wanted TEXT DEFAULT '' NOT NULL;
DROP INDEX step_waits_by_type;
CREATE INDEX step_waits_by_discriminator ON step_waits (event_type, tenant, fields, wanted);
