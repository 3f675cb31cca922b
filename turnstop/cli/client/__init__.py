"""A server's rooms from a terminal: `turnstop send`, `stop`, `watch`, and the like."""
