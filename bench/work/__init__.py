"""Work beyond functions: requests to other servers, and schedules that events set off."""
