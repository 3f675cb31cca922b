"""`turnstop lab`: the real programs, listed and installed."""
