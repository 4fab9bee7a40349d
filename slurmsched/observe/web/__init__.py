"""A small HTTP server for reading only, and the pages of the daemon."""
