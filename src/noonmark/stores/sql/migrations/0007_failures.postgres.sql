CREATE INDEX occurrences_failed ON occurrences (phase, ended, id) WHERE phase IN ('delivery_failed', 'failed', 'misfired', 'timed_out');
