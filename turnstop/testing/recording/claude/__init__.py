"""Claude Code in memory."""
