"""Which slurmsched this is, where several work beside one Slurm."""

from __future__ import annotations

import hashlib
import socket
from urllib.parse import urlsplit

from slurmsched.config import Config
from slurmsched.passwords import url_without_password


def tag_of(config: Config) -> str:
    """Six hex digits, in the name of each of its reservations: the same at every start, other than another's.

    It goes by where the record of acts is: host and journal file or, where hosts take turns, the database they share.
    """
    where = [socket.gethostname(), str(config.ledger.journal.absolute())]
    if config.leader.enabled:
        url = urlsplit(url_without_password(config.ledger.url))
        where = [url.hostname or "", str(url.port or ""), url.path]
    return hashlib.blake2b("\0".join(where).encode(), digest_size=3).hexdigest()
