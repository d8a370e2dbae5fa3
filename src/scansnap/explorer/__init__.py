"""The explorer: a page that trains while you watch.  `web/` holds its sources, and builds `explorer.html`."""
