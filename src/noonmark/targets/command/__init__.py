"""The command target: programs, started by a supervisor process beside the node."""
