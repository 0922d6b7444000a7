ALTER TABLE schedules ADD COLUMN pause TEXT COLLATE "C";
DROP INDEX schedules_to_plan;
CREATE INDEX schedules_to_plan ON schedule_states (plan_at, uid) WHERE phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL;
