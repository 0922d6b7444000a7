"""Wire: the envelopes of the public JSON, described for people and for tools."""
