"""No password of the ledger's database is shown, whatever form it comes in, and its file must be guarded."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from slurmsched import logs
from slurmsched.cli.main import main
from slurmsched.config_file import digest, load_config, parse_config
from slurmsched.db import database as engines
from slurmsched.errors import ConfigError, LedgerError
from slurmsched.passwords import holds_password, read_password, url_without_password, without_passwords
from slurmsched.slurm.doctor.site_checks import check_files
from slurmsched.slurm.site import installation_tag

ROOT = Path(__file__).parents[2]
WORD = "hidd3n"
URLS = (  # every way to write a password into a URL, right or wrong
    f"mysql+pymysql://me:{WORD}@127.0.0.1:1/db",
    f"mysql://me:{WORD}%40%2F%3A@127.0.0.1:1/db?charset=utf8mb4",
    f"mysql://me:{WORD}@{WORD}@127.0.0.1:1/db",
    f"mysql://me:{WORD}/a?b#c@127.0.0.1:1/db",
    f"mysql://me:a {WORD} '{WORD}@127.0.0.1:1/db",
    f"mysql://me%3A{WORD}@127.0.0.1:1/db",
    f"mysql://me@corp:{WORD}/{WORD}@127.0.0.1:1/db",
    f"mysql://me@corp:12/{WORD}@127.0.0.1:1/db",
    f"mysql://me@corp:{WORD}?{WORD}=1@127.0.0.1:1/db",
    f"mysql://me@127.0.0.1:1/db?passwort={WORD}:{WORD}@127.0.0.1",
    f"mysql://127.0.0.1/db?passwort={WORD}:{WORD}@127.0.0.1",
    f"mysql://:{WORD}@127.0.0.1:1/db",
    f"mariadb://me@127.0.0.1:1/db?password={WORD}",
    f"mysql://me@127.0.0.1:1/db?passwd={WORD}&charset=utf8mb4",
    f"mysql://me@127.0.0.1:1/db?pass%77ord={WORD}",
    f"mysql://me@127.0.0.1:1/db?ssl_key_password={WORD}",
    f"mysql://me@127.0.0.1:1/db?passwort={WORD}",
    f"mysql://me@127.0.0.1:1/db?passwort=a@{WORD}",
    f"postgresql://me@127.0.0.1:1/db?sslmode=require&sslpassword={WORD}",
    f"postgresql://me@127.0.0.1:1/db?sslmode=require&password={WORD}",
    f"postgresql://me@127.0.0.1:1/db?options=-c%20password%3D{WORD}",
    f"postgresql://me@127.0.0.1:1/db?options=-c+ldap.secret%3D'{WORD}+{WORD}'",
    f"postgresql:///db?host=127.0.0.1&port=1&user=me&password={WORD}",
    f"postgresql://me@127.0.0.1:{WORD}/db",
    f"oracle://me:{WORD}@127.0.0.1/db",
    f"mysql//me:{WORD}@127.0.0.1/db",
    f"host=127.0.0.1 password={WORD}",
    f"host=127.0.0.1 password = 'a {WORD}'",
    f"me:{WORD}@127.0.0.1/db",
    f"sqlite:///relative?password={WORD}",
)
COMMANDS = (
    ["config", "show"],
    ["config", "show", "--json"],
    ["config", "check"],
    ["config", "check", "--json"],
    ["--debug", "config", "check"],
    ["db", "upgrade"],
    ["--debug", "db", "upgrade"],
    ["operations"],
    ["topology", "quality"],
)


@pytest.mark.parametrize("url", URLS)
def test_commands__show_no_password(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file or a variable, whether the command works or fails: what is printed gets pasted into tickets."""
    (path := tmp_path / "slurmsched.toml").write_text(
        f'ledger.journal = "{tmp_path}/j"\nledger.lock = "{tmp_path}/l"\nledger.url = {json.dumps(url)}\n'
    )
    told = ""
    for words in COMMANDS:
        main(["--config", str(path), *words])
        told += "".join(capsys.readouterr())
    monkeypatch.setenv("SLURMSCHED_LEDGER__URL", url)
    main(["config", "show"])
    told += "".join(capsys.readouterr())
    for wrong in (f"ledger = {json.dumps(url)}", f"ledger.url = [{json.dumps(url)}]"):
        path.write_text(wrong)
        monkeypatch.delenv("SLURMSCHED_LEDGER__URL", raising=False)
        main(["--debug", "--config", str(path), "config", "show"])
        told += "".join(capsys.readouterr())
    assert told
    assert WORD not in told


@pytest.mark.parametrize("url", URLS[:-1])
def test_doctor_digest_and_log__show_no_password(url: str, tmp_path: Path) -> None:
    """What doctor finds, the digest that status compares, and a log line with a traceback."""
    ledger = {"journal": f"{tmp_path}/j", "lock": f"{tmp_path}/l"}
    config = parse_config({"ledger": {"url": url, **ledger}})
    assert WORD not in str(check_files(config, None))
    other = parse_config({"ledger": {"url": url.replace(WORD, "another"), **ledger}})
    assert (digest(config), installation_tag(config)) == (digest(other), installation_tag(other))
    assert holds_password(url) or "passwort" in url or f":{WORD}/" in url


@pytest.mark.parametrize("style", ["json", "text"])
def test_log__shows_no_password(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a value, in a list, and in a traceback whose variables hold it too."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("info", style)
    password = WORD
    try:
        try:
            raise ValueError(f"cannot open mysql://me:{password}@host/db?ssl_key_password={password}")
        except ValueError as error:
            logs.get_logger().error("it.failed", error=str(error), more=[f"password='a {WORD}'"], exc_info=True)
    finally:
        logs.configure("info")
    assert "Traceback" in stream.getvalue()
    assert WORD not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ledger mysql://me@host/db: gone", "ledger mysql://me@host/db: gone"),
        ("cannot reach mysql://me:a@b@host/db?charset=utf8", "cannot reach mysql://me:***@host/db?charset=utf8"),
        ("ledger.password_file /etc/p: is empty", "ledger.password_file /etc/p: is empty"),
        (
            "ledger.password_file /etc/ledger.password: others may",
            "ledger.password_file /etc/ledger.password: others may",
        ),
        ("see http://host:9811/job/1", "see http://host:9811/job/1"),
        ("a@b: ledger mysql://me@host/db: gone", "a@b: ledger mysql://me@host/db: gone"),
        ("me@h: 'http://me:a@host/x' and more", "me@h: 'http://me:***@host/x' and more"),
        ("'mysql://me:a@host/db' failed\nat b@c", "'mysql://me:***@host/db' failed\nat b@c"),
    ],
)
def test_without_passwords__leaves_the_rest(text: str, shown: str) -> None:
    """Host, database and options that hold none stay: an error must still help."""
    assert without_passwords(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at mysql://u:pa'ss@h/db, gone", "at mysql://u:***@h/db, gone"),
        ('at mariadb+pymysql://u:12"34@h/db', "at mariadb+pymysql://u:***@h/db"),
        ("'PostgreSQL://u:pa ss>x@h/db' gone", "'PostgreSQL://u:***@h/db' gone"),
        ("http://u:x@h mysql://u:a b@h/db?charset=utf8 http://u:y@h", "http://u:***@h mysql://u:***@***"),
        ("it says password='abc def", "it says password=***"),
        ('it says password="abc def\\', "it says password=***"),
        ("it says password='a\\\nb c' gone", "it says password=*** gone"),
        ("it says 'password=pa'ss' gone", "it says 'password=***' gone"),
    ],
)
def test_without_passwords__with_quotes_and_blanks(text: str, shown: str) -> None:
    """A password may hold what ends a word; where it ends is not known then, and too much is hidden."""
    assert without_passwords(text) == shown


def test_without_passwords__is_quick_with_long_text() -> None:
    """A text of a user, logged as it is, must not cost minutes."""
    for part in ("password", "x://", "a@", "password='", "://a:", "&a", "mysql://", "a@mysql://", "password='\\"):
        assert without_passwords(part * 20_000)
        assert without_passwords(f"mysql://{part * 20_000}@h")


@pytest.mark.parametrize(
    "url", ["mysql://me@host/db?ssl_ca=/etc/ca.pem", "postgresql://me@host/db?sslmode=verify-full"]
)
def test_url_without_password__shows_what_holds_none(url: str) -> None:
    """A URL without a password stays as it is."""
    assert (url_without_password(url), holds_password(url)) == (url, False)


def guarded(path: Path, content: bytes = b"hidd3n\n", mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "mode", "what"),
    [
        (b"x\n", 0o644, r"others may read or write it \(-rw-r--r--\); run `chmod g-w,o= "),
        (b"x\n", 0o602, "others may read or write it"),
        (b"x\n", 0o660, "its group may write it"),
        (b"", 0o600, "is empty; write the password into it"),
        (b" \n", 0o600, "is empty"),
        (b"a\nb\n", 0o600, "has more than one line"),
        (b"\xff", 0o600, "is not UTF-8"),
        (b"x" * 5000, 0o600, "is longer than 4096 bytes"),
    ],
)
def test_read_password__refuses(tmp_path: Path, content: bytes, mode: int, what: str) -> None:
    """What is wrong, with which file, and what to do."""
    path = guarded(tmp_path / "p", content, mode)
    with pytest.raises(LedgerError, match=f"^ledger.password_file {path}: {what}"):
        read_password(path)


def test_read_password__of_no_file(tmp_path: Path) -> None:
    """Missing, a folder, a pipe in which nobody writes."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    before = sorted(Path("/proc/self/fd").iterdir())
    for name, what in (
        ("none", "is not there; run `install -o slurmsched"),
        (".", "is no ordinary file"),
        ("pipe", "is no ordinary file"),
    ):
        with pytest.raises(LedgerError, match=what):
            read_password(tmp_path / name)
    assert sorted(Path("/proc/self/fd").iterdir()) == before  # asked again at each connection: none may stay open


@pytest.mark.parametrize(("content", "word"), [(b"a b\n", "a b"), (b"p\xc3\xa4@:/\r\n", "pä@:/"), (b"%41", "%41")])
def test_read_password__as_it_stands(tmp_path: Path, content: bytes, word: str) -> None:
    """No character needs an escape; a group that only reads is let in."""
    assert read_password(guarded(tmp_path / "p", content, 0o640)) == word


@pytest.mark.parametrize("url", ["mysql://me@127.0.0.1:1/db", "postgresql://me@127.0.0.1:1/db?sslmode=require"])
def test_connection__takes_the_password_of_the_file_by_then(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed password needs no restart. It is in no URL, and an error that quotes it is told without it."""
    path = guarded(tmp_path / "a p&%41")
    address = parse_config({"ledger": {"url": url, "password_file": str(path)}}).ledger.address
    engine = engines.open_engine(address)
    seen: list[str] = []

    def connect(*_: object, **options: str) -> None:
        seen.append(options["password"])
        assert "password_file" not in options
        raise ValueError(f"no way to use {options['password']} or {quote(options['password'])}")

    monkeypatch.setattr(engine.dialect, "connect", connect)
    for word in (WORD, "other w0rd"):
        guarded(path, word.encode())
        with pytest.raises(LedgerError) as caught, engines.ledger_errors(engine):
            engine.connect()
        assert "no way to use *** or ***" in str(caught.value)
    assert seen == [WORD, "other w0rd"]
    assert WORD not in str(engine.url)
    assert engines.url_for_people(address) == url


@pytest.mark.parametrize(
    ("ledger", "what"),
    [
        ({"password_file": "p"}, "ledger.password_file: must be an absolute path"),
        ({"password_file": "/p"}, "url names a SQLite file"),
        ({"password_file": "/p", "url": "mysql://me:x@h/d"}, "url holds a password too"),
        ({"password_file": "/p", "url": "postgresql://me@h/d?password=x"}, "url holds a password too"),
        ({"password_file": "/p", "url": "postgresql://me@h/d?sslpassword=x&password=x"}, "url holds a password too"),
        ({"password_file": "/p", "url": "mysql://me:x?sslpassword=1@h/d"}, "url holds a password too"),
        ({"password_file": "hunter2"}, r"must be an absolute path, got \*\*\*$"),
        ({"password_file": ["hunter2"]}, r"must be a path in quotes, got \*\*\*$"),
        ({"password_file": "/var/lib/slurmsched/lock", "url": "mysql://me@h/d"}, "are the same file"),
    ],
)
def test_config__password_file(ledger: dict[str, str], what: str) -> None:
    """SQLite has no password: a file for one means that the URL was not read, which made a stray database."""
    with pytest.raises(ConfigError, match=what):
        parse_config({"ledger": ledger})


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@h/d?ssl_cert=/c&ssl_key=/k&ssl_key_password=x",
        "postgresql://me@h/d?sslpassword=x&sslkey=/k",
        "postgresql://me@h/d?sslkey=/k&sslpassword=x%2Fy",
    ],
)
def test_config__password_file_beside_the_one_of_a_key(url: str) -> None:
    """It opens the client's key. It is still hidden, and the file that holds it still has to be guarded."""
    assert parse_config({"ledger": {"url": url, "password_file": "/p"}}).ledger.url == url
    assert holds_password(url)


def test_config__password_file_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every key, and `config check` refuses what is wrong with it."""
    monkeypatch.setenv("SLURMSCHED_LEDGER__URL", "mysql://me@127.0.0.1/db")
    monkeypatch.setenv("SLURMSCHED_LEDGER__PASSWORD_FILE", str(tmp_path / "none"))
    assert load_config(None).ledger.password_file == tmp_path / "none"
    assert main(["config", "check"]) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("ssl_ca=/nowhere/ca.pem", "ssl_ca=/nowhere/ca.pem cannot be used: No such file"),
        ("ssl_verify=true", "unknown option ssl_verify"),
        ("ssl_verify_cert=maybe", "must be true or false"),
        ("ssl_key=/k", "ssl_key needs ssl_cert"),
        ("ssl_ca=/nowhere/ca.pem&ssl_key_password=x", "ssl_key_password needs ssl_cert"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_tls__options_of_mysql_that_cannot_be(options: str, what: str) -> None:
    """Said as an error of the ledger, before or at the first connection."""
    with pytest.raises(LedgerError, match=what):
        engine = engines.open_engine(f"mysql://me@127.0.0.1:1/db?{options}")
        engine.connect()


@pytest.mark.parametrize("options", ["ssl_verify_identity=true", "ssl_check_hostname=true", "ssl_verify_cert=1"])
def test_tls__is_checked_unless_said_otherwise(options: str) -> None:
    """pymysql by itself checks no certificate where ssl_verify_identity comes without its own ssl_ca."""
    url, tls = engines._with_tls(engines._parsed(f"mysql://me@h/db?{options}"))
    assert (tls["ssl"].check_hostname, tls["ssl"].verify_mode.name, dict(url.query)) == (True, "CERT_REQUIRED", {})
    _, off = engines._with_tls(engines._parsed("mysql://me@h/db?ssl_verify_cert=false"))
    assert (off["ssl"].check_hostname, off["ssl"].verify_mode.name) == (False, "CERT_NONE")


@pytest.mark.parametrize("driver", ["mysql+foo", "mariadb+foo", "postgresql+foo", "sqlite+foo"])
def test_driver__that_is_missing(driver: str) -> None:
    """Said as an error of the ledger, without the password."""
    with pytest.raises(LedgerError, match="Can't load plugin") as caught:
        engines.open_engine(f"{driver}://me:{WORD}@h/db", read_only=True)
    assert WORD not in str(caught.value)


def test_tls__of_older_pymysql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends the password in clear where a server, or whoever stands between, says that there is no TLS."""
    assert engines.open_engine("mysql://me@127.0.0.1:1/db?ssl_verify_cert=true")
    monkeypatch.setattr("pymysql.connect", lambda **_: object())
    assert engines.open_engine("mysql://me@127.0.0.1:1/db")
    with pytest.raises(LedgerError, match=r"needs pymysql 1\.2 or newer"):
        engines.open_engine("mysql://me@127.0.0.1:1/db?ssl_verify_cert=true")


def test_upgrade_script_of_packages__gives_what_units_get(tmp_path: Path) -> None:
    """Quotes are taken off as systemd does; & and $ mean nothing; other lines are left out."""
    (variables := tmp_path / "default").write_text(
        "# SLURMSCHED_NO=1\nPATH=/nowhere\nSLURMSCHED_LEDGER__URL=mysql://me@h/d?a=$b&c=d\nSLURMSCHED_bad=1\n"
        "SLURMSCHED_NOTHING\n \tSLURMSCHED_LEDGER__PASSWORD_FILE = '/a b' \t\r\nOTHER=\\\n"
        'SLURMSCHED_A=  b c\t\r\nSLURMSCHED_E=\nSLURMSCHED_LOG__LEVEL="debug"\r'
    )
    (fake := tmp_path / "runuser").write_text('#!/bin/sh\nenv | grep ^SLURMSCHED_ | sort; echo "$@"\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = [str(ROOT / "packaging" / "upgrade-ledger"), str(variables)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "SLURMSCHED_A=b c",
        "SLURMSCHED_E=",
        "SLURMSCHED_LEDGER__PASSWORD_FILE=/a b",
        "SLURMSCHED_LEDGER__URL=mysql://me@h/d?a=$b&c=d",
        "SLURMSCHED_LOG__LEVEL=debug",
        "-u slurmsched -- slurmsched db upgrade",
    ]
    for line in (
        "SLURMSCHED_A=b\\",
        "SLURMSCHED_A='b",
        'SLURMSCHED_A="',
        'SLURMSCHED_A="b\\"c"',
    ):  # read otherwise by systemd
        variables.write_text(f"{line}\n")
        done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, "SLURMSCHED_A: a" in done.stderr) == (1, "", True)
    for maintained in ("debian/postinst", "slurmsched.spec"):
        text = (ROOT / "packaging" / maintained).read_text()
        assert '/usr/lib/slurmsched/upgrade-ledger || echo "slurmsched: run \\`slurmsched db upgrade\\`' in text
