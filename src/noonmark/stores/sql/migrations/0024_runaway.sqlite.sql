ALTER TABLE schedule_states ADD COLUMN runaway TEXT;
