"""Below ASGI: the listening socket, strict HTTP/1.1, and limits on connections."""
