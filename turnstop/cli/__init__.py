"""The `turnstop` command."""
