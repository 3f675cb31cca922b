"""One module for each kind of agent. None imports another; each names the extra that it needs."""
