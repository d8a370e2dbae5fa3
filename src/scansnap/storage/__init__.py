"""The one way anything is written: atomic, checksummed, locked and resumable."""
