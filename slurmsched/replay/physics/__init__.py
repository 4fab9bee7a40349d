"""Physics of replays: how fast a job runs, on what it holds. One a file; see protocols.Physics."""
