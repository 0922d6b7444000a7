"""The command target: programs, started by a supervisor process of the node."""
