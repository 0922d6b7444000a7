"""REST: the operations over HTTP."""
