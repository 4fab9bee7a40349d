"""What is known of the ledger's tables without SQLAlchemy: their revision, and how long a text of a column may be."""

from __future__ import annotations

HEAD = "0001"  # revision of the newest migration

WORD, NAME, REASON = 32, 100, 500  # characters
_LONGEST = {
    "policy": NAME, "user": NAME, "operation": 64, "holder": 200, "stopped": REASON, "reason": REASON,
    "message": REASON, "cause": REASON, "note": REASON, "nodes": REASON,
}  # fmt: skip
_UNLIMITED = {("operations", "nodes"), ("carries", "carry"), ("shared_lines", "text")}


def longest_text(table: str, column: str) -> int | None:
    """Characters that fit into a text column of a table; None = any number."""
    return None if (table, column) in _UNLIMITED else _LONGEST.get(column, WORD)
