ALTER TABLE event_listeners RENAME TO older_listeners;
CREATE TABLE event_listeners (
    tenant TEXT NOT NULL,
    event_type TEXT NOT NULL,
    schedule BIGINT NOT NULL,
    fields TEXT DEFAULT '' NOT NULL,
    wanted TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (schedule, event_type),
    FOREIGN KEY(schedule) REFERENCES schedules ("key")
)
 WITHOUT ROWID;
INSERT INTO event_listeners (tenant, event_type, schedule) SELECT * FROM older_listeners;
DROP TABLE older_listeners;
CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules WHEN OLD.trigger_document IS NOT NEW.trigger_document BEGIN UPDATE event_listeners SET fields = '', wanted = '' WHERE schedule = NEW.key; END;
CREATE INDEX event_listeners_by_discriminator ON event_listeners (tenant, event_type, fields, wanted, schedule);
