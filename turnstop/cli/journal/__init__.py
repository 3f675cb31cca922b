"""`turnstop journal`: what a journal's file says, and what can be done with it."""
