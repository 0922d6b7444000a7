"""The ASGI server: REST, JSON-RPC and the documents of other schedulers over HTTP, and the process that hosts them."""
