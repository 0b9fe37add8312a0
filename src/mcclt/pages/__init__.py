"""Pages for a browser: reports and recordings."""
