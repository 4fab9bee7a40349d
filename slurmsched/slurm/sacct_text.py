"""Splits the text of `sacct -P` into rows of named fields."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurmsched.input_files import InputFile
from slurmsched.plain_text import pluralize

NEEDED_FIELDS = ("State", "Submit", "Start", "End")
FREE_TEXT = frozenset({
    "JobName", "SubmitLine", "Comment", "WorkDir", "Extra", "AdminComment", "SystemComment", "Constraints", "Container",
    "Licenses", "WCKey", "StdIn", "StdOut", "StdErr",
})  # fmt: skip
FORMAT = ("Cluster,JobID,JobIDRaw,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,Suspended,"
          "TimelimitRaw,NNodes,NodeList,AllocTRES,ReqTRES,Constraints,SubmitLine,JobName")  # fmt: skip
RUN = f"SLURM_TIME_FORMAT=%s sacct -aXDP --noconvert --delimiter=';|;' -S now-30days -o {FORMAT}"
MOST_LINES = 200  # of one row
MOST_BEFORE = 200  # lines before the header
SHOWN = 200  # characters of a line that is no row
_ID_BEGUN = re.compile(r"\d[\d_.+\[\]%,-]*")
_NAMES = re.compile(r"[A-Za-z]+(?:([^A-Za-z]+)[A-Za-z]+)+[^A-Za-z]*")
SACCT_MESSAGES = re.compile(
    r"(?:sacct|slurm\w*|srun|munge\w*): (?:error|fatal|warning|info|debug\d?)\b.*", re.IGNORECASE
)
_ROW = re.compile(r"\d+(?:_\d+|\+\d+|_\[[^\]]*\])?(?:\.\w+)?(\||;\|;|\t|\x1f).*\1"
                  r"(?:COMPLETED|FAILED|CANCELLED(?: by \d+)?|TIMEOUT|PENDING|RUNNING|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY"
                  r"|REQUEUED)\1.*")  # fmt: skip
_RULED = re.compile(r"\s*-{4,}(?:\s+-{4,})+\s*")


@dataclass(frozen=True, slots=True)
class SacctHeader:
    """Field names and what parts them. closed: each line ends with the delimiter, as of `sacct -p`."""

    names: tuple[str, ...]
    delimiter: str
    closed: bool = False

    def row(self, text: str) -> SacctRow | None:
        """A row, None if the text has too few or too many fields.

        A delimiter within a text of users makes surplus parts. The fields before and after the texts are sure. If
        several texts stand side by side, their parts cannot be told apart, so these texts are left out. Quotes of a
        spreadsheet are read if the parts do not fit otherwise.
        """
        values = text.split(self.delimiter)
        if len(values) > len(self.names) and '"' in text and self.delimiter in ",;\t":
            (quoted,) = csv.reader([text.replace("\n", " ")], delimiter=self.delimiter)
            values = quoted if len(quoted) == len(self.names) else values
        if self.closed:
            if values.pop() != "":
                return None
        elif len(values) == len(self.names) + 1 and values[-1] == "" and self.names[-1] not in FREE_TEXT:
            values.pop()
        surplus = len(values) - len(self.names)
        if surplus == 0:
            return SacctRow(dict(zip(self.names, values, strict=True)))
        places = [place for place, name in enumerate(self.names) if name in FREE_TEXT]
        if surplus < 0 or not places or places[-1] - places[0] != len(places) - 1:
            return None
        first, after = places[0], places[-1] + 1
        names, end = self.names, after + surplus
        fields = dict(zip((*names[:first], *names[after:]), (*values[:first], *values[end:]), strict=True))
        texts = self.delimiter.join(values[first:end])
        if len(places) == 1:
            return SacctRow(fields | {names[first]: texts})
        return SacctRow(fields, unclear=texts)

    def torn(self, text: str) -> bool:
        """Whether a line without any delimiter may be the begin of a row."""
        begun = _ID_BEGUN.fullmatch(text) if self.names[0] in ("JobID", "JobIDRaw") else text.strip()
        return bool(begun)


@dataclass(frozen=True, slots=True)
class SacctRow:
    """Fields by name. unclear: texts that hold the delimiter, set together; they are none of the fields."""

    fields: dict[str, str]
    unclear: str = ""


def header_of(line: str) -> SacctHeader | None:
    """The header if the line is one: field names, State and an id among them."""
    line = line.rstrip("\r\n")
    match = _NAMES.fullmatch(line)
    delimiter = match and re.sub(r"^[A-Za-z]+", "", line)
    if not match or not delimiter:
        return None
    mark = re.match(r"[^A-Za-z]+", delimiter)
    if mark is None or not mark[0].strip(" "):
        return None
    closed = line.endswith(mark[0])
    names = line.removesuffix(mark[0]).split(mark[0])
    if not all(name.isalpha() for name in names) or "State" not in names or not {"JobID", "JobIDRaw"} & set(names):
        return None
    return SacctHeader(tuple(names), mark[0], closed)


def looks_like_sacct(lines: Sequence[str]) -> bool:
    """Whether these are the first lines of a text that sacct printed, well or not."""
    first = next((line for line in lines if line.strip() and not SACCT_MESSAGES.fullmatch(line)), "")
    if first.lstrip().startswith(("{", "[")):
        return False
    if not first:
        return any(line.startswith(("sacct: error: ", "sacct: fatal: ")) for line in lines)
    return any(
        header_of(line) or _ROW.fullmatch(line) or (at and _RULED.fullmatch(line) and "JobID" in lines[at - 1])
        for at, line in enumerate(lines[:MOST_BEFORE])
    )


# Over 30 lines: one pass over the lines; each case changes what the next line may be.
def read_rows(file: Iterable[str], source: InputFile) -> Iterator[tuple[int, SacctRow]]:
    """Line number and row; lines that are none are rejected. Raises InputError if no header is found.

    What sacct says of errors is kept in source.said. A text such as SubmitLine may hold line breaks: a line that ends
    within one is set together with those after it until they are a row. Where that text is the last field, what follows
    a row without any delimiter belongs to it, and is passed over; lines that may as well be rows torn within their
    first field are counted.
    """
    lines = enumerate(file, 1)
    header = _first_header(lines, source)
    texts = _texts(header)
    held: list[tuple[int, str]] = []
    after_row = False
    said = list[str]()
    for line, raw in lines:
        text = raw.rstrip("\r\n")
        if SACCT_MESSAGES.fullmatch(text):
            said.append(text)
            continue
        if not held and (again := header_of(text)) is not None and set(NEEDED_FIELDS) <= set(again.names):
            header, texts, after_row = again, _texts(again), False
            continue
        if after_row and header.delimiter not in text:
            source.passed_over += header.torn(text)
            continue
        if not (text.strip() or held):
            continue
        row, first = header.row(text), line
        if row is None and held:
            first = held[0][0]
            row = header.row("\n".join((*(each for _, each in held), text)))
            held = [] if row else held
        if row is None and len(held) < MOST_LINES and (held or text.count(header.delimiter) in texts):
            held.append((line, text))
            after_row = False
            continue
        _reject([each for each, _ in held], header, source)
        held, after_row = [], row is not None and header.names[-1] in FREE_TEXT
        if row is None:
            _reject([first], header, source)
        else:
            yield first, row
    _reject([each for each, text in held if text.strip()], header, source)
    _note_message(said, source)


def _reject(lines: Sequence[int], header: SacctHeader, source: InputFile) -> None:
    for line in lines:
        source.reject(line, f"has not the header's {len(header.names)} fields")


def _texts(header: SacctHeader) -> set[int]:
    return {place for place, name in enumerate(header.names) if name in FREE_TEXT}


def _first_header(lines: Iterator[tuple[int, str]], source: InputFile) -> SacctHeader:
    """The header; lines before it are reported. Raises InputError that says what to run."""
    before = list[str]()
    for line, raw in lines:
        text = raw.rstrip("\r\n")
        header = header_of(text)
        if header is not None:
            missing = [name for name in NEEDED_FIELDS if name not in header.names]
            if missing:
                raise source.fail(f"has no field {', '.join(missing)}; {_advice()}", line=line)
            _note_message(before, source)
            return header
        if _RULED.fullmatch(text) and before and "JobID" in before[-1]:
            raise source.fail(f"is sacct's default table, which cuts its fields; {_advice()}", line=line)
        if _ROW.fullmatch(text):
            raise source.fail(f"has no header line (sacct -n leaves it out); {_advice()}", line=line)
        before += [text] * bool(text.strip())
        if len(before) > MOST_BEFORE:
            break
    errors = [text for text in before if SACCT_MESSAGES.fullmatch(text)]
    if errors:
        raise source.fail(f"holds no answer of sacct; it says: {errors[0][:SHOWN]!r}")
    raise source.fail(f"has no header line with {', '.join(NEEDED_FIELDS)} and JobIDRaw or JobID; {_advice()}", line=1)


def _advice() -> str:
    return f"run: {RUN}"


def _note_message(lines: Sequence[str], source: InputFile) -> None:
    """Lines that are no rows, for people."""
    errors = [text for text in lines if SACCT_MESSAGES.fullmatch(text)]
    others = len(lines) - len(errors)
    if others:
        first = next(text for text in lines if text not in errors)
        source.said.append(f"{pluralize(others, 'line')} before the header passed over, the first {first[:SHOWN]!r}")
    if errors:
        source.said.append(f"sacct says so itself in {pluralize(len(errors), 'line')}, and its answer may be cut: "
                           f"{errors[0][:SHOWN]!r}")  # fmt: skip
