"""One module per version of the schema; what is released is never changed."""
