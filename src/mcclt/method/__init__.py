"""One agent, as pure functions: what it learns from, and how. Knows nothing of the rest."""
