"""Statistics over seeds, and what they say of the paper's claims."""
