"""The version of the schema that this code knows: the newest of the migrations."""

VERSION = "0006"
