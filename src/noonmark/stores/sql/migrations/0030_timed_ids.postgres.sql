ALTER TABLE nodes ADD COLUMN schema_version TEXT COLLATE "C";
