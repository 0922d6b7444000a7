DROP INDEX schedules_with_history;
ALTER TABLE schedule_states ADD COLUMN history_bucket INTEGER GENERATED ALWAYS AS ((history - 1) / 25) STORED;
CREATE INDEX schedules_with_history ON schedule_states (history_bucket) WHERE history_bucket >= 1;
