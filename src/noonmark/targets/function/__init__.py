"""The function target: Python functions, called on the event loop, in threads or in processes."""
