"""The report of a span of time: what is on record, the figures made from it, and the page that shows them."""
