"""The models of the API: the arguments that operations take, and the documents that they answer with."""
