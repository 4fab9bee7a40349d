from __future__ import annotations

import re
import threading
from dataclasses import replace

import orjson
import pytest

from slurmsched.model import Reservations, Rights, Site
from slurmsched.model.job_details import JobDetails
from slurmsched.observe.web.frame import MOST_JOBS
from slurmsched.observe.web.web_pages import WebPages, slurm_duration, use_chart
from slurmsched.observe.web.web_server import HttpRequest, HttpResponse
from slurmsched.testing import snapshot
from tests.unit.observe.web.frame_samples import EVIL, NOW_S, frame, look


@pytest.fixture
def pages() -> WebPages:
    made = WebPages()
    made.show(frame())
    return made


def page(pages: WebPages, path: str, query: str = "") -> str:
    answer = pages.answer(HttpRequest(path, query))
    assert answer is not None
    return answer.body.decode()


def data(pages: WebPages, path: str, query: str = "") -> dict:
    return orjson.loads(page(pages, path, query))


def test_queue__is_in_the_policys_order(pages):
    """The page has the jobs of the JSON, in its order; a user's or partition's part on demand."""
    told = data(pages, "/queue.json")
    assert (told["of"], [row["rank"] for row in told["jobs"]]) == (15, list(range(1, 16)))
    assert [row["attained_gpu_s"] for row in told["jobs"][:5]] == [0.0] * 4 + [3_600.0]
    html = page(pages, "/")
    places = [html.index(f'/job?id={row["job_id"]}"') for row in told["jobs"]]
    assert places == sorted(places)
    assert {row["user"] for row in data(pages, "/queue.json", "user=ann")["jobs"]} == {"ann"}
    assert data(pages, "/queue.json", "partition=nosuch")["of"] == 0
    assert data(pages, "/queue.json", "user=ann&account=physics&partition=gpu")["of"] == 5
    assert data(pages, "/queue.json", "account=biology")["of"] == 0


def test_queue__says_how_long_a_job_waits_and_when_slurm_expects_to_start_it(pages):
    """From the submission; an estimate only where Slurm has one; names are cut and escaped."""
    rows = {row["job_id"]: row for row in data(pages, "/queue.json")["jobs"]}
    assert (rows[33]["waiting_s"], rows[33]["expected_start_s"], rows[34]["expected_start_s"]) == (
        3_300.0, NOW_S + 3_600, None,
    )  # fmt: skip
    html = page(pages, "/")
    assert '<td data-value="3300.0">0:55:00</td>' in html
    assert '<td data-value="1770003600.0">02-02 03:40</td>' in html
    assert "train &lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_running__has_the_job_that_must_end_first_at_the_top(pages):
    """With the GPUs and folded nodes of each; filters as in the queue."""
    shown = look()
    jobs = shown.jobs.with_columns(
        node_list=["n[10,2,1]" if text == "n2" else text for text in shown.jobs.node_list],
        end_s=[NOW_S + 60 if job == 22 else float("nan") for job in shown.jobs.job_id],
    )  # fmt: skip
    pages.show(frame(replace(shown, jobs=jobs)))
    told = data(pages, "/running.json")
    assert [(row["job_id"], row["gpus"], row["run_s"], row["node_list"]) for row in told["jobs"]] == [
        (22, 2, 600.0, "n[1-2,10]"), (21, 4, 600.0, "n1"),
    ]  # fmt: skip
    assert data(pages, "/running.json", "user=carol")["of"] == 1
    assert "0:10:00</td>" in page(pages, "/running")


def test_use__counts_what_tenants_hold_and_wait_for(pages):
    """The one that holds most first; the bars end where the shares do."""
    told = data(pages, "/use.json")
    users = {row["name"]: (row["gpus"], row["jobs"], row["waiting_jobs"]) for row in told["users"]}
    assert (users["carol"], users[EVIL], users["ann"]) == ((4, 1, 0), (2, 1, 5), (0, 0, 5))
    assert [row["name"] for row in told["users"]][:2] == ["carol", EVIL]
    assert '<rect class="held" width="66.67" height="10"/>' in page(pages, "/use")


def test_use__is_drawn_from_two_looks_on(pages):
    """Of those a minute apart; looks a second apart replace each other."""
    assert "Two looks are needed" in page(pages, "/use")
    for later_s in (60.0, 61.0, 62.0, 120.0):
        pages.show(frame(replace(look(), now_s=NOW_S + later_s)))
    told = data(pages, "/use.json")["samples"]
    assert [one["at_s"] - NOW_S for one in told] == [0.0, 60.0, 120.0]
    assert {(one["gpus"], one["allocated"], one["waiting_jobs"]) for one in told} == {(24, 6, 15)}
    assert page(pages, "/use").count('<path class="line" d="M0 ') == 3


def test_chart__is_a_step_line_of_the_values():
    """From the lower left corner to the upper right one."""
    samples = [{"at_s": 0.0, "n": 0.0}, {"at_s": 10.0, "n": 2.0}, {"at_s": 20.0, "n": 4.0}]
    drawn = use_chart(samples, "n")
    assert drawn is not None
    assert (drawn.line, drawn.top) == ("M0 200.0H500.0V100.0 H1000.0V0.0", 4.0)
    assert use_chart(samples, "n", 8.0).top == 8.0
    assert use_chart(samples[:1], "n") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.4, "0:00:59"), (3_600.0, "1:00:00"), (90_061.0, "1-01:01:01"), (float("inf"), "UNLIMITED"),
     (float("nan"), "-"), (-5.0, "0:00:00")],
)  # fmt: skip
def test_durations__are_as_slurm_writes_them(seconds, text):
    """Hours always, days where there are any."""
    assert slurm_duration(seconds) == text


def test_nodes__are_in_the_order_that_people_count_in():
    """n2 before n10, on the map and in the list of nodes that look alike."""
    made = WebPages()
    nodes = [{"name": f"n{number}", "gpus": 2, "gpu_types": "gpu:a100:2"} for number in (10, 2, 1)]
    made.show(frame(snapshot([], nodes, now_s=NOW_S)))
    told = data(made, "/gpus.json")
    assert [node["name"] for node in told["nodes"]] == ["n1", "n2", "n10"]
    assert [line["nodes"] for line in told["alike"]] == ["n[1-2,10]"]


@pytest.mark.parametrize("path", ["/", "/queue.json", "/job.json"])
def test_query__of_too_many_fields_is_told(pages, path):
    """400, and no line in the log; as many as allowed are answered."""
    answer = pages.answer(HttpRequest(path, "&".join(["a=1"] * 21)))
    assert answer is not None
    assert (answer.status, b"More than 20 fields" in answer.body) == (400, True)
    assert pages.answer(HttpRequest("/queue.json", "&".join(["a=1"] * 20))).status == 200


def test_queue__is_bounded(pages):
    """However long it is; how long is told."""
    snapshot = look()
    pages.show(frame(snapshot))
    many = frame()
    many.rows = many.rows * 100  # type: ignore[misc]
    pages.show(many)
    told = data(pages, "/queue.json")
    assert (told["of"], len(told["jobs"])) == (1_500, MOST_JOBS)
    assert f"the first {MOST_JOBS} here" in page(pages, "/")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/", ""),
        ("/gpus", ""),
        ("/running", ""),
        ("/use", ""),
        ("/job", "id=44"),
        ("/running", f"account={EVIL}"),
        ("/", f"user={EVIL}"),
        ("/job", f"id={EVIL}"),
    ],
)
def test_pages__escape_what_users_wrote(pages, path, query):
    """Names, and what comes with the address: no markup of theirs, nothing that turns the reading direction."""
    html = page(pages, path, query)
    assert "<script>alert" not in html
    assert "\u202e" not in html


def test_gpus__show_every_gpu_with_its_holder(pages):
    """By node; the link leads to the job."""
    told = data(pages, "/gpus.json")
    assert [len(node["gpus"]) for node in told["nodes"]] == [8, 8, 8]
    assert [gpu.get("job_id") for gpu in told["nodes"][0]["gpus"]] == [21] * 4 + [None] * 4
    html = page(pages, "/gpus")
    assert html.count('class="gpu held"><span class="sr">') == 6
    assert html.count('href="/job?id=21"') == 4


def test_job__is_explained_from_the_snapshot(pages):
    """Blocker, rank, who is ahead; and what was not looked at."""
    told = data(pages, "/job.json", "id=33")
    assert (told["job_id"], told["blocker"], told["ahead"]["rank"]) == (33, "others-first", 7)
    assert "`slurmsched explain JOB` does" in told["unread"][0]
    assert "rank 7 of 15" in page(pages, "/job", "id=33")


def test_job__is_estimated_from_waits_asked_once_a_job():
    """Once a frame, however many ask."""
    asked, waits_s = [], tuple(float(wait) for wait in range(0, 90_000, 100))
    made = WebPages()
    made.show(frame(past=lambda job, gpus: asked.append((job, gpus)) or JobDetails(waits_s=waits_s)))
    for _ in range(3):
        told = data(made, "/job.json", "id=33")
    assert told["estimate"]["source"] == "history"
    assert "between 2026-" in page(made, "/job", "id=33")
    assert len(asked) == 1


def test_job__whose_records_are_long_in_coming_keeps_nobody_waiting():
    """Other pages, and other jobs, are answered meanwhile; the same job is asked for once."""
    asked, come, made = list[int](), threading.Event(), WebPages()

    def past(job: int, gpus: int) -> JobDetails:
        asked.append(job)
        assert job != 33 or come.wait(60)
        return JobDetails()

    made.show(frame(past=past))
    answers = list[dict]()
    slow = [threading.Thread(target=lambda: answers.append(data(made, "/job.json", "id=33"))) for _ in range(2)]
    for thread in slow:
        thread.start()
    assert data(made, "/queue.json", "user=ann")["jobs"]
    assert data(made, "/gpus.json")["nodes"]
    assert data(made, "/job.json", "id=32")["job_id"] == 32
    assert answers == []
    come.set()
    for thread in slow:
        thread.join()
    assert ([one["job_id"] for one in answers], sorted(asked)) == ([33, 33], [32, 33])


def test_job__tells_what_slurmsched_did():
    """Asked once a job; a requeue of ours explains a begin time."""
    asked, made = list[int](), WebPages()
    late = snapshot([{"job_id": 33, "reason": "BeginTime", "eligible_s": NOW_S + 60}], "1x8", now_s=NOW_S)
    made.show(
        frame(late, past=lambda job, _: asked.append(job) or JobDetails(ours=("took its GPUs <b>",), requeued=True))
    )
    data(made, "/job.json", "id=33")
    told = data(made, "/job.json", "id=33")
    assert (told["blocker"], told["ours"], asked) == ("requeued", ["took its GPUs <b>"], [33])
    assert "<li>took its GPUs &lt;b&gt;</li>" in page(made, "/job", "id=33")


def test_job__tells_the_values_of_its_limit():
    """Slurm is asked once a job, for one that waits; as JSON and as a page, and nothing is said to be unread."""
    asked, made = list[int](), WebPages()
    jobs = [{"job_id": 33, "reason": "QOSMaxJobsPerUserLimit"}, {"job_id": 34, "state": "R"}]
    told = JobDetails(limits="QOS=small<b>(1) MaxJobsPU=2(2)")
    made.show(frame(snapshot(jobs, "1x8", now_s=NOW_S), ask=lambda row: asked.append(row) or told))
    found = data(made, "/job.json", "id=33")
    (limit,) = found["limits"]
    assert (limit["owner"], limit["field"], limit["value"], limit["used"]) == ("QOS small<b>", "MaxJobsPU", 2.0, 2.0)
    html = page(made, "/job", "id=33")
    assert "QOS small&lt;b&gt; may have 2 jobs (MaxJobsPU, 2 in use, the job needs 1)" in html
    assert ("not read" in html, data(made, "/job.json", "id=34")["blocker"], asked) == (False, "running", [0])


def test_job__whose_values_are_not_asked_says_so():
    """Of one that waits; what runs has nothing to ask."""
    made = WebPages()
    made.show(frame(snapshot([{"job_id": 33}, {"job_id": 34, "state": "R"}], "1x8", now_s=NOW_S)))
    assert ["not asked" in text for text in data(made, "/job.json", "id=33")["unread"]] == [True]
    assert data(made, "/job.json", "id=34")["unread"] == []


def test_job__tells_of_moving_and_of_what_its_time_is_made_of():
    """As `explain` does, by the row; nothing where there is nothing to tell."""
    made = WebPages()
    made.show(frame(move=lambda row: f"row {row} <may>" * (row == 0), expected=lambda row: ("x 2.00 for <b>",)))
    told = data(made, "/job.json", "id=21")
    assert (told["move"], told["expected"]) == ("row 0 <may>", ["x 2.00 for <b>"])
    html = page(made, "/job", "id=21")
    assert "<dt>move</dt><dd>row 0 &lt;may&gt;</dd>" in html
    assert "<li>x 2.00 for &lt;b&gt;</li>" in html
    assert "<dt>move</dt>" not in page(made, "/job", "id=33")


@pytest.mark.parametrize(
    ("private", "shown", "hidden"),
    [("", ["secret", "account ml"], []), ("accounts", ["secret", "others, who are not shown"], ["ml"]),
     ("reservations", ["slurmsched-1a2b3c-28-99", "PrivateData=reservations"], ["secret", "ml"])],
)  # fmt: skip
def test_job__has_of_reservations_what_slurm_shows_users(private, shown, hidden):
    """The daemon sees them all; those of slurmsched are shown."""
    rows = {"name": ["secret", "slurmsched-1a2b3c-28-99"], "node_list": ["n1", "n2"], "accounts": ["ml", ""],
            "start_s": [NOW_S - 9] * 2, "end_s": [NOW_S + 3_600] * 2}  # fmt: skip
    jobs = [{"job_id": 33, "gpus": 8, "partition": "gpu", "reason": "Priority"}]
    site = Site(rights=Rights.ADMINISTRATOR, settings={"PrivateData": private})
    made, look = WebPages(), snapshot(jobs, "3x8", now_s=NOW_S, site=site)
    made.show(frame(replace(look, reservations=Reservations.build(2, rows))))
    told, html = page(made, "/job.json", "id=33"), page(made, "/job", "id=33")
    assert [text for text in (*shown, "job 28") if text not in told] == []
    assert [text for text in hidden if re.search(rf"\b{text}\b", told + html)] == []


def test_job__in_a_reservation_that_slurm_hides_is_not_said_to_name_a_wrong_one():
    """Its times are hidden, its name is not: squeue shows it."""
    jobs = [{"job_id": 33, "reservation": "secret", "reason": "Reservation"}]
    look = snapshot(jobs, "3x8", now_s=NOW_S, site=Site(settings={"PrivateData": "reservations"}))
    table = Reservations.build(1, {"name": ["secret"], "node_list": ["n1"], "start_s": [NOW_S], "end_s": [NOW_S + 60]})
    (made := WebPages()).show(frame(replace(look, reservations=table)))
    told = data(made, "/job.json", "id=33")
    assert told["because"].startswith("It waits for reservation secret, which Slurm's PrivateData hides")


def test_now__tells_that_there_is_a_newer_state_and_asks_nothing():
    """So that a page of a job that stays open costs Slurm nothing; it has the time to compare with."""
    asked, made = list[int](), WebPages()
    made.show(frame(ask=lambda row: asked.append(row) or JobDetails()))
    assert (data(made, "/now.json")["now_s"], asked) == (NOW_S, [])
    assert f'<time data-now="{NOW_S}">' in page(made, "/job", "id=33")
    assert re.findall(r"fetch\(([^)]*)\)", page(made, "/page.js")) == ['"/now.json"']
    assert made.answer(HttpRequest("/now")) is None


@pytest.mark.parametrize("query", ["id=99999", "id=0", "id=-1", "id=1e3", "id=" + "9" * 40, "id=²"])
def test_job__that_is_not_there(pages, query):
    """404 in words, as a page and as JSON."""
    answer = pages.answer(HttpRequest("/job", query))
    assert (answer.status, b"Slurm has no job" in answer.body) == (404, True)
    assert pages.answer(HttpRequest("/job.json", query)).status == 404


def test_job__without_an_id_asks_for_one(pages):
    """No error."""
    answer = pages.answer(HttpRequest("/job"))
    assert (answer.status, b"Which job?" in answer.body) == (200, True)


@pytest.mark.parametrize("private", ["jobs", "accounts,users", "all", "JOBS"])
def test_private_jobs__stay_private(private):
    """Where Slurm hides jobs of others, queue and jobs are not shown, and the map names nobody."""
    made = WebPages()
    made.show(frame(look(PrivateData=private)))
    for path in ("/", "/queue.json", "/job", "/running", "/running.json"):
        answer = made.answer(HttpRequest(path, "id=33"))
        assert (answer.status, b"carol" in answer.body, b"33" in answer.body and path == "/") == (403, False, False)
    for path in ("/gpus.json", "/gpus", "/use.json", "/use"):
        told = made.answer(HttpRequest(path))
        assert (told.status, b"carol" in told.body, b"evil" in told.body, b"job_id" in told.body) == (
            200, False, False, False,
        )  # fmt: skip


def test_before_the_first_cycle__it_says_so():
    """503, in words."""
    answer = WebPages().answer(HttpRequest("/"))
    assert (answer.status, b"No cycle has been run yet" in answer.body) == (503, True)


def test_failed_cycle__is_said_on_every_page(pages):
    """The state before stays, with a warning; the next that works takes it off."""
    pages.fail("The last cycle failed")
    assert all("The last cycle failed" in page(pages, path) for path in ("/", "/gpus"))
    assert data(pages, "/queue.json")["note"] == "The last cycle failed"
    pages.show(frame())
    assert data(pages, "/queue.json")["note"] == ""


@pytest.mark.parametrize(
    "path", ["/nosuch", "/queue.json/", "/../etc/passwd", "/static/page.js", "//", "/gpus.json.json"]
)
def test_other_paths__are_not_there(pages, path):
    """Only what is listed."""
    assert pages.answer(HttpRequest(path)) is None or path == "//"


def test_static__is_served_with_its_type(pages):
    """Style and script of ours; pages have no script or style within, so that CSP forbids all such."""
    assert pages.answer(HttpRequest("/style.css")).content_type.startswith("text/css")
    assert pages.answer(HttpRequest("/page.js")).content_type.startswith("text/javascript")
    assert page(pages, "/style.css").startswith(":root { color-scheme: light;")
    assert "table.sortable thead button" in page(pages, "/page.js")
    for path in ("/", "/running", "/gpus", "/use", "/job"):
        html = page(pages, path)
        assert "<style" not in html
        assert "<script>" not in html
        assert " style=" not in html
        assert " onclick" not in html


def test_pages__may_be_asked_from_several_threads(pages):
    """All get the same answer."""
    found: list[HttpResponse | None] = []
    threads = [threading.Thread(target=lambda: found.append(pages.answer(HttpRequest("/gpus")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.etag for answer in found if answer}) == 1
    assert len(found) == 8


def test_json__takes_what_is_no_number_and_half_characters():
    """NaN becomes null, half a character a question mark."""
    from slurmsched.observe.web.web_pages import dumped

    assert orjson.loads(dumped({"a": float("nan"), "b": "\ud800", "c": ("x",)})) == {"a": None, "b": "?", "c": ["x"]}
