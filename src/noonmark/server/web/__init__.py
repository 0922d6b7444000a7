"""The web page: its files, its sign-in, and the stream of changes that keeps it live."""
