ALTER TABLE schedule_states ADD COLUMN rate_window TEXT;
