ALTER TABLE notes ADD COLUMN source TEXT COLLATE "C";
ALTER TABLE notes ADD COLUMN changes TEXT COLLATE "C";
ALTER TABLE occurrences ADD COLUMN late BIGINT;
UPDATE occurrences SET late = (SELECT min(started) FROM runs WHERE occurrence = occurrences.key) - first_due WHERE attempt > 0 OR losses > 0;
CREATE INDEX schedules_deleted_of_owner ON schedules (tenant, username) WHERE is_listed = 0;
CREATE INDEX occurrences_live_of_owner ON occurrences (owner, nominal, schedule, ended) WHERE ended IS NULL;
CREATE INDEX occurrences_ended_of_owner ON occurrences (owner, nominal, phase, late, schedule, ended) WHERE ended IS NOT NULL;
CREATE INDEX schedules_of_owner ON schedule_states (owner, phase);
