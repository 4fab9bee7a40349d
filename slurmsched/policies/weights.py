"""What jobs weigh beside each other, as an administrator tells it in the parameters of a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.jobs import Jobs
from slurmsched.policies.checks import named_numbers

KINDS = ("qos", "user", "account")


def check_weights(texts: Sequence[str]) -> None:
    """Raises ConfigError for a text that is not KIND:NAME=WEIGHT, of a kind that jobs have."""
    named_numbers("weights", texts, "KIND:NAME=WEIGHT", kinds=KINDS)


def weights_of(jobs: Jobs, texts: Sequence[str], kinds: Sequence[str] = KINDS) -> Floats:
    """The weight of each job: the product of those of its QOS, its user and its account, of these kinds. (N,), above 0.

    texts: KIND:NAME=WEIGHT each; whoever is not named weighs 1.
    """
    found = np.ones(len(jobs))
    for key, weight in named_numbers("weights", texts, "KIND:NAME=WEIGHT", kinds=KINDS).items():
        kind, _, name = key.partition(":")
        if kind in kinds:
            found *= np.where(getattr(jobs, kind).isin([name]), weight, 1.0)
    return found


def unmet(snapshot: Snapshot, texts: Sequence[str], accounts: Sequence[str] = ()) -> tuple[str, ...]:
    """A note that names those of weights that no job is of now, lest one that is misspelt be taken to hold.

    accounts: more names of accounts that must be some. An account that has shares is known without jobs too.
    """
    jobs = snapshot.jobs
    known = {f"{kind}:{name}" for kind in KINDS for name in getattr(jobs, kind).names}
    known |= {f"account:{name}" for name in snapshot.shares}
    told = [*(text.rpartition("=")[0] for text in texts), *(f"account:{name}" for name in accounts)]
    missing = [key for key in dict.fromkeys(told) if key not in known]
    return (f"no job is of {', '.join(missing)} now",) if missing and len(jobs) else ()
