CREATE INDEX schedules_by_owner ON schedules (tenant, username) WHERE is_listed = 1;
