ALTER TABLE schedule_states ADD COLUMN leads TEXT;
ALTER TABLE occurrences ADD COLUMN behind TEXT;
