"""The explorer: a page that trains while one watches.  `web/` holds its sources, and builds `explorer.html`."""
