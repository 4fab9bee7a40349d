from __future__ import annotations

import re
import threading

import orjson
import pytest

from slurmsched.explain.facts import Facts
from slurmsched.testing import snapshot
from slurmsched.web.frame import MOST_JOBS
from slurmsched.web.pages import Pages
from slurmsched.web.server import Answer, Asked
from tests.unit.web.made_up import EVIL, NOW_S, frame, look


@pytest.fixture
def pages() -> Pages:
    made = Pages()
    made.show(frame())
    return made


def page(pages: Pages, path: str, query: str = "") -> str:
    answer = pages.answer(Asked(path, query))
    assert answer is not None
    return answer.body.decode()


def data(pages: Pages, path: str, query: str = "") -> dict:
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


@pytest.mark.parametrize("path", ["/", "/queue.json", "/job.json"])
def test_query__of_too_many_fields_is_told(pages, path):
    """400, and no line in the log; as many as allowed are answered."""
    answer = pages.answer(Asked(path, "&".join(["a=1"] * 21)))
    assert answer is not None
    assert (answer.status, b"More than 20 fields" in answer.body) == (400, True)
    assert pages.answer(Asked("/queue.json", "&".join(["a=1"] * 20))).status == 200


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
    ("path", "query"), [("/", ""), ("/gpus", ""), ("/job", "id=44"), ("/", f"user={EVIL}"), ("/job", f"id={EVIL}")]
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
    made = Pages()
    made.show(frame(past=lambda job, gpus: asked.append((job, gpus)) or Facts(waits_s=waits_s)))
    for _ in range(3):
        told = data(made, "/job.json", "id=33")
    assert told["estimate"]["source"] == "history"
    assert "between 2026-" in page(made, "/job", "id=33")
    assert len(asked) == 1


def test_job__whose_records_are_long_in_coming_keeps_nobody_waiting():
    """Other pages, and other jobs, are answered meanwhile; the same job is asked for once."""
    asked, come, made = list[int](), threading.Event(), Pages()

    def past(job: int, gpus: int) -> Facts:
        asked.append(job)
        assert job != 33 or come.wait(60)
        return Facts()

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
    asked, made = list[int](), Pages()
    late = snapshot([{"job_id": 33, "reason": "BeginTime", "eligible_s": NOW_S + 60}], "1x8", now_s=NOW_S)
    made.show(frame(late, past=lambda job, _: asked.append(job) or Facts(ours=("took its GPUs <b>",), requeued=True)))
    data(made, "/job.json", "id=33")
    told = data(made, "/job.json", "id=33")
    assert (told["blocker"], told["ours"], asked) == ("requeued", ["took its GPUs <b>"], [33])
    assert "<li>took its GPUs &lt;b&gt;</li>" in page(made, "/job", "id=33")


def test_job__tells_the_values_of_its_limit():
    """Slurm is asked once a job, for one that waits; as JSON and as a page, and nothing is said to be unread."""
    asked, made = list[int](), Pages()
    jobs = [{"job_id": 33, "reason": "QOSMaxJobsPerUserLimit"}, {"job_id": 34, "state": "R"}]
    told = Facts(limits="QOS=small<b>(1) MaxJobsPU=2(2)")
    made.show(frame(snapshot(jobs, "1x8", now_s=NOW_S), ask=lambda row: asked.append(row) or told))
    found = data(made, "/job.json", "id=33")
    (limit,) = found["limits"]
    assert (limit["owner"], limit["field"], limit["value"], limit["used"]) == ("QOS small<b>", "MaxJobsPU", 2.0, 2.0)
    html = page(made, "/job", "id=33")
    assert "QOS small&lt;b&gt; may have 2 jobs (MaxJobsPU, 2 in use, the job needs 1)" in html
    assert ("not read" in html, data(made, "/job.json", "id=34")["blocker"], asked) == (False, "running", [0])


def test_job__whose_values_are_not_asked_says_so():
    """Of one that waits; what runs has nothing to ask."""
    made = Pages()
    made.show(frame(snapshot([{"job_id": 33}, {"job_id": 34, "state": "R"}], "1x8", now_s=NOW_S)))
    assert ["not asked" in text for text in data(made, "/job.json", "id=33")["unread"]] == [True]
    assert data(made, "/job.json", "id=34")["unread"] == []


def test_job__tells_of_moving_and_of_what_its_time_is_made_of():
    """As `explain` does, by the row; nothing where there is nothing to tell."""
    made = Pages()
    made.show(frame(move=lambda row: f"row {row} <may>" * (row == 0), expected=lambda row: ("x 2.00 for <b>",)))
    told = data(made, "/job.json", "id=21")
    assert (told["move"], told["expected"]) == ("row 0 <may>", ["x 2.00 for <b>"])
    html = page(made, "/job", "id=21")
    assert "<dt>move</dt><dd>row 0 &lt;may&gt;</dd>" in html
    assert "<li>x 2.00 for &lt;b&gt;</li>" in html
    assert "<dt>move</dt>" not in page(made, "/job", "id=33")


def test_now__tells_that_there_is_a_newer_state_and_asks_nothing():
    """So that a page of a job that stays open costs Slurm nothing; it has the time to compare with."""
    asked, made = list[int](), Pages()
    made.show(frame(ask=lambda row: asked.append(row) or Facts()))
    assert (data(made, "/now.json")["now_s"], asked) == (NOW_S, [])
    assert f'<time data-now="{NOW_S}">' in page(made, "/job", "id=33")
    assert re.findall(r"fetch\(([^)]*)\)", page(made, "/page.js")) == ['"/now.json"']
    assert made.answer(Asked("/now")) is None


@pytest.mark.parametrize("query", ["id=99999", "id=0", "id=-1", "id=1e3", "id=" + "9" * 40, "id=²"])
def test_job__that_is_not_there(pages, query):
    """404 in words, as a page and as JSON."""
    answer = pages.answer(Asked("/job", query))
    assert (answer.status, b"Slurm has no job" in answer.body) == (404, True)
    assert pages.answer(Asked("/job.json", query)).status == 404


def test_job__without_an_id_asks_for_one(pages):
    """No error."""
    answer = pages.answer(Asked("/job"))
    assert (answer.status, b"Which job?" in answer.body) == (200, True)


@pytest.mark.parametrize("private", ["jobs", "accounts,users", "all", "JOBS"])
def test_private_jobs__stay_private(private):
    """Where Slurm hides jobs of others, queue and jobs are not shown, and the map names nobody."""
    made = Pages()
    made.show(frame(look(PrivateData=private)))
    for path in ("/", "/queue.json", "/job"):
        answer = made.answer(Asked(path, "id=33"))
        assert (answer.status, b"carol" in answer.body, b"33" in answer.body and path == "/") == (403, False, False)
    told = made.answer(Asked("/gpus.json"))
    assert (told.status, b"carol" in told.body, b"job_id" in told.body) == (200, False, False)


def test_before_the_first_cycle__it_says_so():
    """503, in words."""
    answer = Pages().answer(Asked("/"))
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
    assert pages.answer(Asked(path)) is None or path == "//"


def test_static__is_served_with_its_type(pages):
    """Style and script of ours; pages have no script or style within, so that CSP forbids all such."""
    assert pages.answer(Asked("/style.css")).content_type.startswith("text/css")
    assert pages.answer(Asked("/page.js")).content_type.startswith("text/javascript")
    for path in ("/", "/gpus", "/job"):
        html = page(pages, path)
        assert "<style" not in html
        assert "<script>" not in html
        assert " style=" not in html
        assert " onclick" not in html


def test_pages__may_be_asked_from_several_threads(pages):
    """All get the same answer."""
    found: list[Answer | None] = []
    threads = [threading.Thread(target=lambda: found.append(pages.answer(Asked("/gpus")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.etag for answer in found if answer}) == 1
    assert len(found) == 8


def test_json__takes_what_is_no_number_and_half_characters():
    """NaN becomes null, half a character a question mark."""
    from slurmsched.web.pages import dumped

    assert orjson.loads(dumped({"a": float("nan"), "b": "\ud800", "c": ("x",)})) == {"a": None, "b": "?", "c": ["x"]}
