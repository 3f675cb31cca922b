"""The probes of turnstop's own adapters."""
