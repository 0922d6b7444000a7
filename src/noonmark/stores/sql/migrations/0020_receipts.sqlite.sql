ALTER TABLE notes ADD COLUMN session_id TEXT;
ALTER TABLE notes ADD COLUMN tool_call_id TEXT;
ALTER TABLE notes ADD COLUMN parent_schedule_id TEXT;
