"""The Model Context Protocol: the tools of agents, over stdio and HTTP."""
