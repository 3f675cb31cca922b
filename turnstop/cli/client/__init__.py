"""`turnstop send`, `stop`, `interrupt`, `play` and `watch`: a server's rooms, from a terminal."""
