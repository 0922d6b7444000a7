ALTER TABLE model_calls ADD COLUMN whole_id TEXT COLLATE "C";
CREATE INDEX model_calls_of_whole ON model_calls (whole_id) WHERE whole_id IS NOT NULL;
