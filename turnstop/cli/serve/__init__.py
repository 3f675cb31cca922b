"""`turnstop serve`: rooms over HTTP, with a page."""
