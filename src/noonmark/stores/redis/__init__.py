"""The Redis store: the tables of the SQL stores as hashes, and their indexes as sorted sets.

`transactions` knows tables, indexes and commits, and nothing of schedules. `schema` has the tables. `schedule_records`
and `unit_of_work` are what the rules of all stores work on. `connected_store` runs transactions, and `store` is the
port.
"""
