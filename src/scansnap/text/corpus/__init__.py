"""Text: where it comes from, how it becomes tokens, and what occurs beside what."""
