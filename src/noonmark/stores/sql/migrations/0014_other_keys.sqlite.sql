ALTER TABLE occurrences ADD COLUMN other_keys TEXT;
