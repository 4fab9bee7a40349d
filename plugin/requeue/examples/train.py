"""A training loop that may be preempted, without a framework: train.py STEPS STATE_FILE."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_requeue import Asked, save


def main(steps, path):
    asked = Asked("USR1")
    state = {"step": 0, "weight": 0.0}
    if os.path.exists(path):
        with open(path) as file:
            state = json.load(file)
        print("goes on at step", state["step"], flush=True)
    else:
        print("begins", flush=True)
    while state["step"] < steps:
        state["weight"] += (1.0 - state["weight"]) * 0.01  # where an optimiser's step would be
        time.sleep(0.1)
        state["step"] += 1
        if asked:
            save(path, json.dumps(state))
            print("saved at step", state["step"], flush=True)
            asked.leave()
    print("done at step", state["step"], flush=True)


main(int(sys.argv[1]), sys.argv[2])
