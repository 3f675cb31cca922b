"""Stopping an agent means that its remote work really ended. turnstop makes that a `with` block."""
