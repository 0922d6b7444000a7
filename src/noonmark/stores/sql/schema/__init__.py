"""The schema of the SQL stores: tables, views, versions and how to upgrade."""
