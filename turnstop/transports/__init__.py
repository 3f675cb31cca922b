"""What adapters share: processes, wire protocols, streams. Knows of no agent and of no room."""
