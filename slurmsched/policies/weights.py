"""What jobs weigh beside each other, as an administrator tells it in the parameters of a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.model import Jobs
from slurmsched.model.columns import Floats
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
