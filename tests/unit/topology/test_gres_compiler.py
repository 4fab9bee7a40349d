"""Checking and compiling a gres.conf, ring order, and the commands that do it."""

from __future__ import annotations

import os
import subprocess
from itertools import permutations
from pathlib import Path

import numpy as np
import orjson
import pytest

from slurmsched.cli.main import main
from slurmsched.errors import InputError
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.resources.gpu_sets import ring_table, set_ranks
from slurmsched.slurm.doctor.topology_cases import remedies
from slurmsched.topology.gpu_links import machines
from slurmsched.topology.gres_compiler import JOB_SUBMIT, bound_of, by_kind, compile_links, linked_islands, type_groups
from slurmsched.topology.gres_nodes import TypedNode, typed_node
from slurmsched.topology.selection_quality import (
    SETS_DRAWN,
    SHAPED,
    GpuOption,
    SelectionQuality,
    free_sets,
    rate_selection,
    rate_shaped_selection,
    states_of,
)
from slurmsched.topology.slurm_selection import SlurmNode
from slurmsched.topology.slurmd_log import slurmd_devices
from slurmsched.topology.topology_files import read_topology_text
from slurmsched.topology.topology_text import fold_numbers

SCRIPT = Path(__file__).parents[3] / "plugin/task_prolog/ring_order.sh"
RECORDED = Path(__file__).parent / "recorded"
NEW, OLD = (26, 5), (23, 11)


def wired(pairs: dict[tuple[int, int], float], gpus: int = 4) -> GpuTopology:
    """GPUs on one NUMA node whose other links have 10 GB/s."""
    speed = np.full((gpus, gpus), 10.0)
    for (a, b), value in pairs.items():
        speed[a, b] = speed[b, a] = value
    np.fill_diagonal(speed, 0)
    return GpuTopology.build("node", gpus, bandwidth_gb_per_s=speed, numa=np.zeros(gpus, np.int32))


PAIRS = wired({(0, 1): 100.0, (2, 3): 100.0})
TRUE = [[-1, 4, 0, 0], [4, -1, 0, 0], [0, 0, -1, 4], [0, 0, 4, -1]]


def node(links=TRUE, gpus: int = 4) -> SlurmNode:
    return SlurmNode.build([range(4)] * gpus, links, sockets=1, cores_per_socket=32)


def test_set_ranks__widest_ring_first():
    """A linked pair ranks above any other; a ring through four needs two slow links."""
    ranks = set_ranks(PAIRS)
    assert ranks.rank[0b0011] == ranks.rank[0b1100] > ranks.rank[0b0101]
    assert [ranks.ring_gb_per_s[0b0011], ranks.ring_gb_per_s[0b1111]] == [100.0, 10.0]


def test_set_ranks__refuses_what_it_cannot_rank():
    """No bandwidth, or more GPUs than it can try."""
    for bad in (GpuTopology.build("n", 4), wired({(0, 1): 100.0}, 17)):
        with pytest.raises(InputError):
            set_ranks(bad)


def test_check__true_links_are_best_before_24_05_and_worst_after():
    """With pairs told as they are, the pick for two of four is a pair in the old version, none in the new."""
    ranks = set_ranks(PAIRS)
    states = states_of(node(), ranks, GpuOption.PER_NODE, 1)
    old, new = (rate_selection(node(), ranks, GpuOption.PER_NODE, version, states) for version in (OLD, NEW))
    assert 17 == old.states == new.states
    assert (old.best_states, new.best_states) == (15, 12)
    assert pytest.approx(new.worst[0].lost) == 0.9


def test_compile__reaches_its_bound_and_beats_every_file_of_a_small_class():
    """On four GPUs no file with Links of 0, 1 or 2 is better than the compiled one, whatever the order of lines."""
    ranks, version = set_ranks(PAIRS), NEW
    states = states_of(node(), ranks, GpuOption.PER_NODE, 1)
    best = compile_links(node(), PAIRS, ranks, states, GpuOption.PER_NODE, version, reorder=True, most=800)
    upper = np.triu_indices(4, 1)
    found = 0
    for code in range(3**6):
        links = np.zeros((4, 4), np.int32)
        links[upper] = [code // 3**i % 3 for i in range(6)]
        links = links + links.T
        np.fill_diagonal(links, -1)
        for order in ((0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1)):  # the pairs tell no more apart
            got = rate_selection(
                node(links.tolist()), ranks, GpuOption.PER_NODE, version, states, np.array(order, np.int32)
            )
            found = max(found, got.best_states)
    assert best.best_states >= found
    assert best.best_states <= best.bound


def test_compile__is_never_worse_than_the_file_and_repeatable():
    """The own file is tried first; the same input gives the same file."""
    ranks = set_ranks(PAIRS)
    for version in (OLD, NEW):
        states = states_of(node(), ranks, GpuOption.PER_JOB, 1)
        before = rate_selection(node(), ranks, GpuOption.PER_JOB, version, states).best_states
        runs = [compile_links(node(), PAIRS, ranks, states, GpuOption.PER_JOB, version, most=60) for _ in range(2)]
        assert before <= runs[0].best_states
        assert runs[0].node.links.tolist() == runs[1].node.links.tolist()


def test_bound__no_order_exceeds_it():
    """All orders of four lines, with Links by kind: none is over the bound; without reorder it is not higher."""
    ranks = set_ranks(PAIRS)
    states = states_of(node(), ranks, GpuOption.PER_NODE, 1)
    bound = bound_of(node(), ranks, states, GpuOption.PER_NODE, NEW, reorder=True)
    assert bound >= bound_of(node(), ranks, states, GpuOption.PER_NODE, NEW)
    for links in by_kind(PAIRS):
        for order in permutations(range(4)):
            got = rate_selection(
                node(links.tolist()), ranks, GpuOption.PER_NODE, NEW, states, np.array(order, np.int32)
            )
            assert got.best_states <= bound


def test_ring_table__holds_rings_that_are_not_in_the_order_of_numbers():
    """0-2-1-3-0 is linked, 0-1-2-3-0 is not, whichever way round; where all are alike nothing need be told."""
    square = wired({(0, 2): 50.0, (1, 2): 50.0, (1, 3): 50.0, (0, 3): 50.0})
    table = ring_table(square)
    assert [set(table), table[0, 1, 2, 3][2]] == [{(0, 1, 2, 3)}, 1]
    assert ring_table(wired({})) == {}


def test_ring_table__of_few_gpus_only():
    """Nine have a line for each of many sets."""
    with pytest.raises(InputError, match="has 9 GPUs; this works for 2 to 8"):
        ring_table(wired({(0, 1): 100.0}, 9))


@pytest.mark.parametrize(("gpus", "sets"), [(1, 2), (8, 256), (9, 512), (10, 1000), (16, 1000)])
def test_free_sets__all_of_few_gpus_and_a_draw_of_many(gpus, sets):
    """Ascending, none twice, within the node, and the same each time."""
    found = list(free_sets(gpus))
    assert (len(found), len(set(found)), sorted(found), list(free_sets(gpus))) == (sets, sets, found, found)
    assert 0 <= found[0] <= found[-1] < 1 << gpus


def test_free_sets__are_the_same_on_every_machine() -> None:
    """A NumPy that draws others would change shares and compiled files without a word."""
    assert [list(free_sets(gpus))[:4] for gpus in (10, 16)] == [[1, 3, 4, 5], [134, 179, 376, 458]]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="a table of ten GPUs takes long uncompiled")
@pytest.mark.parametrize("reorder", [False, True])
def test_compile__of_ten_gpus_by_states_that_are_drawn(reorder):
    """Bridged pairs: better than the true Links, and within the bound, of which one is told that it is of a draw."""
    pairs = [(g, g + 1) for g in range(0, 10, 2)]
    wiring = wired(dict.fromkeys(pairs, 100.0), 10)
    links = [[-1 if a == b else 4 * (a // 2 == b // 2) for b in range(10)] for a in range(10)]
    ranks, ten = set_ranks(wiring), node(links, 10)
    states = states_of(ten, ranks, GpuOption.PER_NODE, 1)
    before = rate_selection(ten, ranks, GpuOption.PER_NODE, NEW, states)
    best = compile_links(ten, wiring, ranks, states, GpuOption.PER_NODE, NEW, reorder=reorder, most=40)
    assert before.drawn == SETS_DRAWN
    assert before.best_states < best.best_states <= best.bound
    assert (best.bound == len(states)) == reorder  # of so many lines not every order is tried
    assert rate_shaped_selection(ten, ranks, GpuOption.PER_TASK, NEW, 1).drawn == SETS_DRAWN


def test_ranges__folds_runs():
    """Cores as gres.conf writes them."""
    assert [fold_numbers((0, 1, 2, 8)), fold_numbers(()), fold_numbers((5,))] == ["0-2,8", "", "5"]


@pytest.mark.parametrize(("held", "seen", "expected"), [
    ("0,1,2,5", "0,1,2,5", "export CUDA_VISIBLE_DEVICES=0,2,1,5\n"),
    ("0,1,2,5", "0,1,2,3", "export CUDA_VISIBLE_DEVICES=0,2,1,3\n"),
    ("0,1,2,5", "0,1", ""), ("0,1,2,3", "0,1,2,3", ""),
    ("0,1,2,5,6", "0,1,2,5", "export CUDA_VISIBLE_DEVICES=0,2,1,5\n"),
])  # fmt: skip
def test_ring_order__what_the_task_prolog_prints(tmp_path, held, seen, expected):
    """The ring of the GPUs a task sees, in the job's own numbers where it sees those; else nothing."""
    table = tmp_path / "rings"
    table.write_text("nodes other\nring 0,1,2,3 0,3,1,2\nnodes n1 n2\nring 0,1,2,5 0,2,1,5\n")
    env = {"PATH": "/usr/bin:/bin", "RING_TABLE": str(table), "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": held,
           "CUDA_VISIBLE_DEVICES": seen}  # fmt: skip
    done = subprocess.run([str(SCRIPT)], env=env, capture_output=True, text=True, check=True)
    assert expected == done.stdout


def conf(tmp_path: Path) -> list[str]:
    """Options that need no Slurm: four GPUs in pairs."""
    path = tmp_path / "gres.conf"
    lines = [f"NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia{g} Cores=0-31 Links={','.join(map(str, row))}\n"
             for g, row in enumerate(TRUE)]  # fmt: skip
    path.write_text("".join(lines))
    return ["--gres-conf", str(path)]


def test_commands__check_and_compile_without_slurm(tmp_path, capsys):
    """`check` tells the share, `compile` writes lines that `check` reads and finds better; Cores stay."""
    more = ["--slurm", "26.05", "--hardware", "1x32x1"]
    assert main(["topology", "check", *conf(tmp_path), *more]) == 0
    assert "70.6%" in capsys.readouterr().out
    assert main(["topology", "compile", *conf(tmp_path), *more, "--most", "200"]) == 0
    written = capsys.readouterr().out
    assert written.count("Cores=0-31") == 4
    true = (tmp_path / "gres.conf").rename(tmp_path / "true.conf")
    (tmp_path / "gres.conf").write_text(written)
    files = ["--gres-conf", str(tmp_path / "gres.conf"), "--links", str(true)]
    assert main(["topology", "check", *files, *more, "--json"]) == 0
    forms = orjson.loads(capsys.readouterr().out)[0]["forms"]
    assert forms[0]["best_states"] > 12


def test_commands__a_version_whose_picks_are_not_known(tmp_path, capsys):
    """25.05.0 may give GPUs that are held: `check` judges only the state in which all are free, `compile` refuses."""
    more = ["--slurm", "25.05.0", "--hardware", "1x32x1"]
    assert main(["topology", "check", *conf(tmp_path), *more]) == 0
    assert "Slurm 25.05.0 may give a job GPUs that other jobs hold (fixed in 25.05.1)" in capsys.readouterr().out
    assert main(["topology", "check", *conf(tmp_path), *more, "--json"]) == 0
    per_node = orjson.loads(capsys.readouterr().out)[0]["forms"][0]
    assert (per_node["states"], per_node["unknown"]) == (3, 14)
    assert main(["topology", "compile", *conf(tmp_path), *more]) == 2
    assert "update to, such as --slurm 25.05.1" in capsys.readouterr().err


def test_commands__links_without_a_model_take_that_of_gres_conf(tmp_path, capsys):
    """`nvidia-smi topo -m` tells no model; a Type that is none has to be told by --gpu-type."""
    path, answers = tmp_path / "gres.conf", []
    links = str(Path(__file__).with_name("samples") / "002-dgx1-v100.txt")
    for model, more in (("v100", []), ("big", ["--gpu-type", "v100"]), ("big", [])):
        path.write_text(f"NodeName=n1 Name=gpu Type={model} File=/dev/nvidia[0-7]\n")
        of = ["--gres-conf", str(path), "--links", links, *more]
        code = main(["topology", "check", *of, "--slurm", "26.05", "--hardware", "2x20x2", "--json"])
        answers.append((code, capsys.readouterr()))
    assert [code for code, _ in answers] == [0, 0, 2]
    assert answers[0][1].out == answers[1][1].out
    assert "--gpu-type" in answers[2][1].err


def test_commands__of_a_node_that_detects_its_gpus(tmp_path, capsys):
    """What `slurmd -G` prints stands for the lines that its gres.conf lacks; AutoDetect alone is an error."""
    options = ["--slurm=26.05", "--hardware=2x32x1", "--gres-conf"]
    assert main(["topology", "check", *options, str(RECORDED / "26.05.5-slurmd.txt")]) == 0
    shares = [line.split()[1:4] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert shares == [["gpus-per-node", "769", "69.8%"], ["gpus", "769", "87.4%"]]
    printed = [*options, str(RECORDED / "26.05.5-slurmd.txt")]
    assert main(["topology", "compile", "--most=1", "--node=n[1-2]", *printed]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert lines[0].startswith("NodeName=n[1-2] AutoDetect=off Name=gpu Type=a100 File=/dev/fakegpu0 Cores=0-31")
    assert "Flags" not in lines[0]
    for text, words in (("AutoDetect=nvml\n", "AutoDetect=nvml finds links"), ("", "it lists no GPU")):
        (tmp_path / "gres.conf").write_text(text)
        assert main(["topology", "check", *options, str(tmp_path / "gres.conf")]) == 2
        assert words in (said := capsys.readouterr().err)
        assert "slurmd -G" in said


@pytest.mark.parametrize("command", [["compile", "--slurm=26.05", "--hardware=2x32x1"], ["rings"]])
@pytest.mark.parametrize("node", [[], ["--node=n[1-"]])
def test_commands__what_a_slurmd_printed_is_of_its_node_only(command, node, capsys):
    """Lines that name no node would hold for every node that reads the file."""
    assert main(["topology", *command, *node, "--gres-conf", str(RECORDED / "26.05.5-slurmd.txt")]) == 2
    assert "--node n[1-4]" in capsys.readouterr().err


def test_commands__read_from_a_pipe(capsys):
    """It can be read once only."""
    reading, writing = os.pipe()
    os.write(writing, (RECORDED / "26.05.5-slurmd.txt").read_bytes())
    os.close(writing)
    assert main(["topology", "rings", "--node=n7", "--gres-conf", f"/dev/fd/{reading}"]) == 0
    os.close(reading)
    assert capsys.readouterr().out == "nodes n7\n"  # its pairs make no ring


def test_slurmd_devices__flags_as_gres_conf_names_them():
    """slurmd's own words are none of gres.conf's; without an index for each GPU nothing stands in the lines' order."""
    line = "slurmd: Gres Name=gpu Type=h100 Count=1 Index={} File=/dev/nvidia{} Cores=0-3 Flags=HAS_FILE,ENV_NVML\n"
    (first, second) = slurmd_devices(line.format(1, 1) + line.format(0, 0))
    assert (first.files, first.flags, second.files) == (("/dev/nvidia0",), ("nvidia_gpu_env",), ("/dev/nvidia1",))
    assert slurmd_devices(line.format(0, 0) + line.format(2, 2)) == ()


def test_commands__rings_and_wrong_input(tmp_path, capsys):
    """`rings` names the nodes; a version or a hardware that is not one ends with 2 and says what to do."""
    assert main(["topology", "rings", *conf(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("nodes n1\n")
    assert main(["topology", "check", *conf(tmp_path), "--slurm", "20.02", "--hardware", "1x32x1"]) == 2
    assert "--slurm" in capsys.readouterr().err
    assert main(["topology", "check", *conf(tmp_path), "--slurm", "26.05", "--hardware", "many"]) == 2
    assert "--hardware" in capsys.readouterr().err


def test_check_shaped__by_task_and_by_socket():
    """One GPU a task picks as --gpus-per-node does on one socket; order of lines and version count."""
    ranks = set_ranks(PAIRS)
    states = states_of(node(), ranks, GpuOption.PER_NODE, 1)
    for order in (None, np.array((0, 2, 1, 3), np.int32)):
        plain = rate_selection(node(), ranks, GpuOption.PER_NODE, NEW, states, order)
        for form in SHAPED:
            got = rate_shaped_selection(node(), ranks, form, NEW, 1, order)
            assert (got.states, got.best_states, got.unknown) == (plain.states, plain.best_states, 0)
    old = rate_shaped_selection(node(), ranks, GpuOption.PER_TASK, OLD, 1)
    assert (old.states, old.unknown, old.best_share) == (0, 17, 0.0)


def test_islands__by_links_else_by_numa():
    """Bridged pairs are islands; a mesh that links all is cut by NUMA node; where all are alike there is none."""
    found = {name: linked_islands(one) for name, one in machines().items()}
    assert found["bridged-pairs"] == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert found["dgx-1v"] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found["uneven-v100"] == ()
    assert linked_islands(GpuTopology.build("unknown", 4)) == ()


def test_compile__prints_the_other_means_with_their_lines(tmp_path, capsys):
    """Where a file cannot be the best in every state: typed lines, the Gres of slurm.conf, and job_submit.lua."""
    more = ["--slurm", "26.05", "--hardware", "1x32x1", "--most", "5"]
    assert main(["topology", "compile", *conf(tmp_path), *more]) == 0
    said = capsys.readouterr().err
    assert "NodeName=n1 AutoDetect=off Name=gpu Type=a100_i1 File=/dev/nvidia2 Cores=0-31\n" in said
    assert "Gres=gpu:a100_i0:2,gpu:a100_i1:2\n" in said
    assert JOB_SUBMIT in said


def test_type_groups__islands_where_they_reach_every_best_set():
    """Pairs, quads: a Type each. A mesh has sets that no islands name, so each GPU has its own."""
    alone = tuple((gpu,) for gpu in range(8))
    found = {name: type_groups(one, set_ranks(one).rank) for name, one in machines().items() if one.gpus <= 8}
    assert found["bridged-pairs"] == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert found["summit"] == ((0, 1, 2), (3, 4, 5))
    assert found["dgx-1v"] == alone


def test_type_groups__only_runs_of_neighbours():
    """Slurm numbers GPUs Type by Type: islands whose GPUs lie apart would change the numbers."""
    crossed = wired({(0, 2): 100.0, (1, 3): 100.0})
    assert type_groups(crossed, set_ranks(crossed).rank) == ((0,), (1,), (2,), (3,))


def test_compile__types_for_the_daemon(tmp_path, capsys):
    """The file by itself, with what slurm.conf and slurmsched need besides; the lines can be read again."""
    more = ["--slurm", "26.05", "--hardware", "1x32x1", "--types"]
    assert main(["topology", "compile", *conf(tmp_path), *more]) == 0
    text = capsys.readouterr().out
    assert "# slurm.conf, NodeName line: Gres=gpu:a100_i0:2,gpu:a100_i1:2\n" in text
    (one,) = read_topology_text(text, "gres.conf").classes
    assert typed_node(one, (("a100_i0", 2), ("a100_i1", 2))) == TypedNode(("a100_i0",) * 2 + ("a100_i1",) * 2)
    assert main(["topology", "compile", *conf(tmp_path), *more, "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)[0]["lines"][0].startswith(
        "NodeName=n1 AutoDetect=off Name=gpu Type=a100_i0"
    )


def test_check__says_what_helps(tmp_path, capsys):
    """Only where something does: picks that miss, and a form of request that is worse than the other."""
    more = ["--slurm", "26.05", "--hardware", "1x32x1"]
    assert main(["topology", "check", *conf(tmp_path), *more]) == 0
    assert "topology compile" in capsys.readouterr().out
    perfect, worse = (
        SelectionQuality(GpuOption.PER_NODE, 10, 10, 0.0, ()),
        SelectionQuality(GpuOption.PER_JOB, 10, 9, 0.1, ()),
    )
    assert list(remedies([perfect])) == []
    assert "job_submit.lua" in list(remedies([perfect, worse]))[1]


REST = """\
# our GPUs
AutoDetect=nvml
{gpus}NodeName=a[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]
NodeName=n[1-2] Name=shard Count=64  # of all of them
NodeName=n[1-2] Name=mps \\
    Count=800
Name=bandwidth Type=lustre Count=4G Flags=CountOnly
"""
FOR = ["--slurm", "26.05", "--hardware", "1x32x1", "--most", "3"]


def lines_of(nodes: str, more: str = "") -> str:
    """GPUs in pairs, on these nodes; without a NodeName where there are none."""
    head = f"NodeName={nodes} {more}" if nodes else ""
    return "".join(f"{head}Name=gpu Type=a100 File=/dev/nvidia{g} Cores=0-31 Links={','.join(map(str, row))} "
                   "Flags=nvidia_gpu_env\n" for g, row in enumerate(TRUE))  # fmt: skip


def compiled_file(tmp_path: Path, capsys, text: str, *options: str, code: int = 0) -> str:
    """What `compile` writes for this gres.conf."""
    (tmp_path / "gres.conf").write_text(text)
    assert code == main(["topology", "compile", "--gres-conf", str(tmp_path / "gres.conf"), *FOR, *options])
    said = capsys.readouterr()
    return said.err if code else said.out


def gpu_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Name=gpu" in line and not line.startswith("#")]


@pytest.mark.parametrize("options", [(), ("--types",), ("--reorder",)])
@pytest.mark.parametrize(
    "gpus",
    [
        lines_of("n[1-2]", "AutoDetect=off "),
        lines_of("n[1-2]"),
        "NodeName=n[1-2] AutoDetect=off\n" + lines_of("n[1-2]"),
        lines_of("n[1-2]").replace("NodeName=n[1-2] Name=gpu", 'Name=gpu NodeName="n[1-2]"'),
        lines_of("n1") + lines_of("n2"),
    ],
)
def test_compile__turns_autodetect_off_and_keeps_the_rest(tmp_path, capsys, gpus, options):
    """Wherever AutoDetect is set: each new line has AutoDetect=off, and every line of other things stays as it is."""
    text = compiled_file(tmp_path, capsys, REST.format(gpus=gpus), "--node", "n1", *options)
    assert [line.startswith("NodeName=n[1-2] AutoDetect=off Name=gpu ") for line in gpu_lines(text)] == [True] * 4 + [
        False
    ]
    assert all(line in text for line in REST.format(gpus="").splitlines())
    assert "changed: lines 3-" in text.splitlines()[0]
    assert [len(one.devices) for one in read_topology_text(text).classes if one.nodes] == [4, 4]
    assert "AutoDetect=nvml" in text.splitlines()
    if "--types" not in options:  # those are several types: nothing to compile
        assert compiled_file(tmp_path, capsys, text, "--node", "n1", *options).count("wiring of") == 1


def test_compile__other_nodes_of_the_same_line_keep_theirs(tmp_path, capsys):
    """A line of several classes stays for the nodes that were not compiled; a local AutoDetect too."""
    text = (
        "NodeName=n[1-3] AutoDetect=nvml\n" + lines_of("n[1-3]") + "NodeName=n3 Name=gpu Type=a100 File=/dev/nvidia4\n"
    )
    made = compiled_file(tmp_path, capsys, text, "--node", "n2")
    assert "NodeName=n3 AutoDetect=nvml" in made.splitlines()
    assert [line.split()[0] for line in gpu_lines(made)] == ["NodeName=n[1-2]"] * 4 + ["NodeName=n3"] * 5
    assert {one.topology.name: len(one.devices) for one in read_topology_text(made).classes} == {"n3": 5, "n[1-2]": 4}


def test_compile__included_lines_are_put_in_their_place(tmp_path, capsys):
    """An Include with lines that change is written out; one without stays an Include."""
    (tmp_path / "gpus.conf").write_text("# ours\n" + lines_of("n1") + "Name=shard Count=8\n")
    (tmp_path / "more.conf").write_text("Name=bandwidth Count=4\n")
    made = compiled_file(tmp_path, capsys, "include gpus.conf\nInclude more.conf\n")
    assert ["include gpus.conf" in made, "Include more.conf" in made, "Name=shard Count=8" in made] == [
        False,
        True,
        True,
    ]
    assert "changed: gpus.conf lines 2-5" in made
    assert len(gpu_lines(made)) == 4


@pytest.mark.parametrize("auto", ["", "AutoDetect=off\n", "AutoDetect=nvml\n"])
def test_compile__lines_that_name_no_node(tmp_path, capsys, auto):
    """Slurm heeds AutoDetect=off only on a line with NodeName: with AutoDetect the nodes must be named."""
    if auto == "AutoDetect=nvml\n":
        assert "--node n[1-4]" in compiled_file(tmp_path, capsys, auto + lines_of(""), code=2)
        made = compiled_file(tmp_path, capsys, auto + lines_of(""), "--node", "n[1-4]")
        assert [line.startswith("NodeName=n[1-4] AutoDetect=off") for line in gpu_lines(made)] == [True] * 4
        assert "lines without NodeName are now those of n[1-4] alone" in made
    else:
        made = compiled_file(tmp_path, capsys, auto + lines_of(""))
        assert [line.startswith("Name=gpu Type=a100") for line in gpu_lines(made)] == [True] * 4


def test_compile__classes_that_cannot_be_compiled_stay(tmp_path, capsys):
    """GPUs of several types are named on stderr and the others are compiled; alone they are an error."""
    typed = "NodeName=m1 Name=gpu Type=a File=/dev/nvidia0\nNodeName=m1 Name=gpu Type=b File=/dev/nvidia1\n"
    (tmp_path / "gres.conf").write_text(lines_of("n1") + typed)
    assert main(["topology", "compile", "--gres-conf", str(tmp_path / "gres.conf"), *FOR]) == 0
    said = capsys.readouterr()
    assert "left as it is: m1 has GPUs of several types" in said.err
    assert all(line in said.out for line in typed.splitlines())
    assert "several types" in compiled_file(tmp_path, capsys, typed, code=2)


@pytest.mark.parametrize("options", [(), ("--types",), ("--reorder",)])
def test_compile__its_links_are_never_taken_for_the_wiring(tmp_path, capsys, options):
    """Whoever reads the compiled file has the true links, in the new order of lines; Slurm's model has the new ones."""
    before = read_topology_text(lines_of("n1")).classes[0].topology
    (one,) = read_topology_text(compiled_file(tmp_path, capsys, lines_of("n1"), *options)).classes
    order = [device.number for device in one.devices]
    assert np.array_equal(one.topology.kind, before.kind[np.ix_(order, order)])
    assert np.array_equal(one.topology.lanes, before.lanes[np.ix_(order, order)])
    assert np.array_equal(one.topology.bandwidth_gb_per_s, before.bandwidth_gb_per_s[np.ix_(order, order)])
    assert one.topology.warnings == ()


@pytest.mark.parametrize("change", [("GPU2 ", "GPU7 "), (" NV4 ", " "), ("# slurmsched: wiring", "# wiring")])
def test_compile__a_damaged_comment_leaves_the_links_unknown(tmp_path, capsys, change):
    """Not even then are compiled Links the wiring; a warning says what to do."""
    text = compiled_file(tmp_path, capsys, lines_of("n1")).replace(*change)
    (one,) = read_topology_text(text).classes
    assert (one.topology.known, len(one.devices)) == (False, 4)
    assert "compile again" in one.topology.warnings[0]


PCIE = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "".join(
    f"GPU{i}\t" + "\t".join(row.split()) + "\n"
    for i, row in enumerate(["X PIX PHB SYS", "PIX X SYS SYS", "PHB SYS X PXB", "SYS SYS PXB X"])
)


def test_check__pcie_paths_are_ranked_and_unknown_ones_are_not_judged(tmp_path, capsys):
    """PIX over PXB, PHB and SYS: some bandwidth is lost by a farther pair. A pair that the file does not show is
    neither 0 GB/s nor a reason to compile."""
    (tmp_path / "l40s").write_text("".join(f"Name=gpu Type=l40s File=/dev/nvidia{g} Cores=0-31\n" for g in range(4)))
    (tmp_path / "whole").write_text(PCIE)
    (tmp_path / "cut").write_text("".join(PCIE.splitlines(keepends=True)[:3]))
    options = [
        "--slurm=26.05",
        "--hardware=1x32x1",
        "--gres-conf",
        str(tmp_path / "l40s"),
        "--gpu-type=l40s",
        "--links",
    ]
    found = {}
    for name in ("whole", "cut"):
        assert main(["topology", "check", *options, str(tmp_path / name), "--json"]) == 0
        found[name] = orjson.loads(capsys.readouterr().out)[0]["forms"][0]
    assert found["whole"]["worst"][0]["lost"] == pytest.approx(1 - 8 / 11)  # SYS for PXB
    assert (found["whole"]["unknown"], found["whole"]["states"]) == (0, 17)
    assert found["cut"]["unknown"] + found["cut"]["states"] == 17
    assert found["cut"]["unknown"] == 8  # GPUs 2 and 3, with or without others, and every size
    assert main(["topology", "compile", *options, str(tmp_path / "cut")]) == 2
    assert "between GPU2 and GPU3 is not known" in capsys.readouterr().err
    assert main(["topology", "check", *options, str(tmp_path / "cut")]) == 0
    assert "the file is cut" in capsys.readouterr().err


def test_check__a_file_of_another_kind(tmp_path, capsys):
    """No gres.conf is made of NCCL's XML."""
    (tmp_path / "x").write_text(
        '<system version="1"><cpu numaid="0"><pci busid="0:1.0" class="0x030200"/></cpu></system>'
    )
    assert main(["topology", "check", "--slurm=26.05", "--hardware=1x32x1", "--gres-conf", str(tmp_path / "x")]) == 2
    assert "its content is that of nccl" in capsys.readouterr().err
