"""The kernels that pick GPUs as slurmctld does, against their naive twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels import slurm_gpu_pick
from tests.reference import slurm_pick as reference


@st.composite
def states(draw):
    """Free GPUs of a node, their sockets and links, the job's cores, the GPUs it needs, whether it is bound."""
    gpus = draw(st.integers(2, 8))
    free = np.array(draw(st.lists(st.booleans(), min_size=gpus, max_size=gpus)))
    socket = np.array(draw(st.lists(st.integers(-1, 1), min_size=gpus, max_size=gpus)), np.int32)
    links = np.array(draw(st.lists(st.integers(0, 9), min_size=gpus * gpus, max_size=gpus * gpus)), np.int32)
    links = links.reshape(gpus, gpus)
    links = np.maximum(links, links.T)
    np.fill_diagonal(links, -1)
    cores = np.array(draw(st.sampled_from([(1, 0), (0, 1), (1, 1), (2, 6), (5, 3)])), np.int32)
    return free, socket, links, draw(st.booleans()), cores, draw(st.integers(1, gpus)), draw(st.booleans())


@given(state=states())
@settings(deadline=None)
def test_pick_per_node__agrees_with_reference(state):
    """By the cores on each socket, the least linked first."""
    assert reference.pick_per_node(*state) == slurm_gpu_pick.pick_per_node(*state).tolist()


@given(state=states())
@settings(deadline=None)
def test_pick_per_job__agrees_with_reference(state):
    """Near GPUs less those that are linked least to the best linked one."""
    assert reference.pick_per_job(*state) == slurm_gpu_pick.pick_per_job(*state).tolist()


@given(state=states())
@settings(deadline=None)
def test_old_pick_per_node__agrees_with_reference(state):
    """Before 24.05: the best linked first."""
    assert reference.old_pick_per_node(*state) == slurm_gpu_pick.old_pick_per_node(*state).tolist()


@given(state=states())
@settings(deadline=None)
def test_picks__give_free_gpus_and_no_more_than_asked_for(state):
    """Every form: only free GPUs; a node gives as many as asked for, or fewer if they are not there."""
    free, cores, need = state[0], state[4], state[5]
    for module, old in ((slurm_gpu_pick, ""), (slurm_gpu_pick, "old_")):
        most = {"pick_per_node": need, "pick_per_job": need, "pick_per_task": need * int(cores.sum()),
                "pick_per_socket": need * int((cores > 0).sum())}  # fmt: skip
        for name, count in most.items():
            got = getattr(module, old + name)(*state)
            assert not (got & ~free).any()
            assert got.sum() <= count
