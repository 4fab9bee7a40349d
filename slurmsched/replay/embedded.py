"""The embedded cluster: slurmctld's behaviour on simulated time, behind the daemon's own contract."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurmsched.model import Act, Outcome, Plan, Receipt, Snapshot, Step
from slurmsched.model.deferrals import Deferral
from slurmsched.model.plan import Action
from slurmsched.replay import embedded_actions, view
from slurmsched.replay.act_memory import ActMemory
from slurmsched.replay.embedded_events import EmbeddedEvents
from slurmsched.replay.embedded_state import Setting
from slurmsched.replay.engine import Kind
from slurmsched.replay.layout import Layout
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace
from slurmsched.slurm.acting import Acting

LEAST_LOOK_S = 1.0  # as the daemon's: between two cycles, however soon a plan wants to look again


class EmbeddedCluster(EmbeddedEvents):
    """A trace on nodes under slurmctld's rules; a `Cluster` for run_cycle, a `SimulatedCluster` for replay.

    nodes: GPUs of each node, or the whole layout. One node that holds all GPUs is the "count" model, where nodes do not
    matter. requests: what the jobs ask for beyond GPUs and time. told: passes of a recorded slurmctld.
    docs/replay.md lists what is left out.
    Raises InputError for a job that could never start and for names that are not in the layout.
    """

    def __init__(
        self,
        trace: Trace,
        nodes: Sequence[int] | Layout,
        model: SlurmModel | None = None,
        *,
        seed: int = 0,
        requests: Requests | None = None,
        told: Sequence[tuple[float, Kind, bool]] = (),
    ) -> None:
        layout = nodes if isinstance(nodes, Layout) else Layout.of_gpus(nodes)
        requests = requests or Requests.plain(len(trace))
        super().__init__(Setting(trace, layout, model or SlurmModel(), seed, requests, told))
        self._acting, self.wake_s = Acting(ActMemory()), math.inf  # when the last plan's acts want a look
        self._deferrals: dict[int, Deferral] = {}

    def read(self) -> Snapshot:
        """The cluster now, as a reader of a live Slurm gives it, with the service of each job filled in."""
        return view.snapshot(self)

    def apply(self, plan: Plan) -> Receipt:
        """Do as slurmctld does with each action; one that it would refuse stops no other, but the later steps of its
        act. With a latency or a pace in the model a lever counts as written if it would be accepted now.
        """
        self._acting.begin(plan)
        outcomes = tuple(self._answered(action, at) for at, action in enumerate(plan.actions))
        self._acting.end(self._now_s)
        self._deferrals |= {record.job_id: record for record in plan.deferrals}
        self.wake_s = max(plan.wake.at_s, self._now_s + LEAST_LOOK_S) if plan.acts else math.inf
        return Receipt(outcomes, len(outcomes))

    def late_s(self, place: int) -> float:
        """How long after it was planned the lever at this place of a plan takes effect [s]."""
        pause_s = place / self.model.writes_per_s if self.model.writes_per_s else 0.0
        return self.model.rpc_latency_s + pause_s

    @property
    def acts(self) -> tuple[Act, ...]:
        """Those under way, as the daemon's journal has them."""
        return self._acting.open

    @property
    def deferrals(self) -> tuple[Deferral, ...]:
        """Earliest starts that jobs may have by us."""
        return tuple(record for record in self._deferrals.values() if record.open or record.over)

    @property
    def past_acts(self) -> tuple[Act, ...]:
        """Closed ones that caps and leases still count."""
        return self._acting.past(self._now_s)

    def _answered(self, action: Action, place: int) -> Outcome:
        if not (isinstance(action, Step) and action.act):
            return self._apply(action, place)
        if reason := self._acting.unfit(action):
            outcome = Outcome(action, "refused", reason)
        else:
            self._acting.goes(action)
            outcome = self._apply(action, place)
        self._acting.answered(outcome)
        return outcome

    def _apply(self, action: Action, place: int) -> Outcome:
        if reason := embedded_actions.refusal(self, action):
            return Outcome(action, "refused", reason)
        late_s = 0.0 if isinstance(action, Step) else self.late_s(place)
        if not late_s:
            embedded_actions.do(self, action)
        else:
            self._writes.append(action)
            self._events.push(self._now_s + late_s, Kind.WRITE, run=len(self._writes) - 1)
        return Outcome(action, "written")
