"""`slurmsched top`: the queue, the GPUs and what happens, on a terminal."""
