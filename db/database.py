"""Opens, creates and upgrades the ledger's database. All differences between databases are here."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url

from slurmsched.db import schema
from slurmsched.errors import LedgerError
from slurmsched.passwords import holds_password, read_password, url_without_password, without_passwords
from slurmsched.paths import refuse_root

MIGRATION_WAIT_S = 5  # for another process that migrates [s]
UNTRANSACTIONAL = ("mysql", "mariadb")


@contextmanager
def migrate_alone(connection: Connection, where: str) -> Iterator[None]:
    """No other process migrates this database during the body. where: which ledger, for people. Raises LedgerError."""
    name = f"slurmsched-{connection.engine.url.database}"[:64]
    if connection.scalar(sa.select(sa.func.get_lock(name, MIGRATION_WAIT_S))) != 1:
        raise LedgerError(f"{where}another process makes its tables; try again when it is done")
    try:
        yield
    finally:
        with suppress(sa.exc.SQLAlchemyError):  # its connection is gone, and the lock with it
            connection.scalar(sa.select(sa.func.release_lock(name)))


def drop_unfinished_tables(connection: Connection, where: str) -> None:
    """Drop the tables of a migration that was cut short: nothing is written before all of them are there.

    Raises LedgerError for a table that holds more than the migration puts there; then none is dropped.
    """
    names = set(sa.inspect(connection).get_table_names())
    tables = [table for table in schema.metadata.sorted_tables if table.name in names]
    for table in tables:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        if rows > (table is schema.leader):  # the migration makes the row of the leader
            cure = "give slurmsched a database of its own, or restore the table alembic_version from a backup"
            raise LedgerError(f"{where}table {table.name} has rows, but no schema version is recorded; {cure}")
    for table in tables:
        connection.execute(sa.schema.DropTable(table))


# Opening the database

ANSWER_S = 60.0  # a server that says nothing for so long is given up [s]
IDLE_TRANSACTION_S = 60.0  # likewise a transaction in which nothing happens, by the server [s]
BUSY_S = 5  # a database locked by another process is waited for this long [s]
_FILE = "file"  # of a connection's info
_DRIVERS = {
    "sqlite": ("sqlite", ""),
    "mysql": ("mysql+pymysql", "mysql"),
    "mariadb": ("mariadb+pymysql", "mysql"),
    "postgresql": ("postgresql+psycopg", "postgres"),
}


# Without ssl_; the first four name files.
_TLS_OPTIONS = (
    "ca", "capath", "cert", "key", "key_password", "cipher", "check_hostname", "verify_cert", "verify_identity",
)  # fmt: skip


def open_engine(
    url: str, *, read_only: bool = False, patience_s: float | None = None, still_s: float | None = None
) -> Engine:
    """An engine for the URL; nothing is connected yet, but the folder of a SQLite file is made unless read_only.

    patience_s: how long an answer of a server, or a file's lock, is waited for [s]. still_s: how long it lets a
    transaction stand still before it ends it [s], so that whoever was stopped in one keeps nobody out. None: ANSWER_S
    (BUSY_S for a file), STILL_S.
    Raises LedgerError for a URL that cannot be used, RightsError for root in a folder of somebody else.
    """
    parsed = _parsed(url)
    file = parsed.query.get("password_file")
    parsed = parsed.difference_update_query(["password_file"])
    options: dict[str, Any] = {"connect_args": {"timeout": min(patience_s or BUSY_S, BUSY_S)}}
    if parsed.get_backend_name() != "sqlite":
        arguments = _of_server(parsed.get_backend_name(), patience_s or ANSWER_S, still_s or IDLE_TRANSACTION_S)
        if parsed.get_backend_name() != "postgresql":
            parsed, tls = _with_tls(parsed)
            arguments |= tls
        options = {"pool_pre_ping": True, "connect_args": arguments}
    elif read_only:
        parsed = parsed.set(database=f"file:{quote(parsed.database or '')}", query={"mode": "ro", "uri": "true"})
    else:
        _make_folder(parsed)
    engine = _created(parsed, options, url)
    _listen(engine, options["connect_args"].get("ssl"), Path(str(file)) if file else None, read_only=read_only)
    return engine


def _listen(engine: Engine, tls: ssl.SSLContext | None, file: Path | None, *, read_only: bool) -> None:
    """Prepare each connection of the engine as it is opened. file: that of the password."""
    if tls is not None:
        _see_tls_kept(engine, tls)
    if engine.url.get_backend_name() != "sqlite":
        sa.event.listen(engine, "do_connect", _connecting(engine.url, file))
        if file:
            read_password(file)  # what is wrong with it is said before anything is connected
    elif not read_only:
        sa.event.listen(engine, "connect", _set_pragmas)
        sa.event.listen(engine, "connect", _opened(engine))


def _created(parsed: URL, options: dict[str, Any], url: str) -> Engine:
    """The engine of SQLAlchemy. Raises LedgerError without its driver, and for options that it does not take."""
    try:
        return sa.create_engine(parsed, **options)
    except ImportError as error:
        extra = _DRIVERS[parsed.get_backend_name()][1]
        raise LedgerError(
            f"ledger {url_for_people(url)}: no driver for it; `pip install slurmsched[{extra}]`"
        ) from error
    except (TypeError, ValueError, sa.exc.ArgumentError) as error:
        what = without_passwords(str(error), _passwords(parsed))
        raise LedgerError(
            f"ledger {url_for_people(url)}: {what}; see docs/ledger.md for the options of ledger.url"
        ) from None


def check_writable(engine: Engine) -> None:
    """See that a write would begin, and into the file of that name: SQLite has one writer, and goes on writing into a
    file that was removed. Nothing is written. Raises LedgerError."""
    if engine.dialect.name == "sqlite":
        with ledger_errors(engine), engine.connect() as connection:
            if connection.info.get(_FILE) != _identity(engine.url):
                what = "its file was removed or replaced while it was open"
                raise LedgerError(f"ledger {url_for_people(engine.url)}: {what}; restart slurmsched")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.rollback()


def memory_engine() -> Engine:
    """An empty ledger in memory, for a look at the queue where there is none on disk."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    schema.metadata.create_all(engine)
    return engine


def prepare_schema(engine: Engine) -> None:
    """Make the schema in an empty database; see that it is ours in another.

    Raises LedgerError when the schema is older or was cut short (says `slurmsched db upgrade`), or is newer than this
    slurmsched.
    """
    with ledger_errors(engine), engine.connect() as connection:
        names = sa.inspect(connection).get_table_names()
        found = _revision(connection) if "alembic_version" in names else None
    if found is None and not set(names) & set(schema.metadata.tables):
        migrate(engine)
    elif found != schema.HEAD:
        raise LedgerError(_wrong_schema(engine, found))


def check_schema(engine: Engine) -> None:
    """See that the schema is there and is ours. Raises LedgerError if not; nothing is written."""
    with ledger_errors(engine), engine.connect() as connection:
        found = _revision(connection) if sa.inspect(connection).has_table("alembic_version") else None
    if found != schema.HEAD:
        raise LedgerError(_wrong_schema(engine, found))


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database, None of any other. Raises ValueError if url is not an SQLAlchemy URL."""
    try:
        parsed = make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("not an SQLAlchemy URL") from None  # the text of the first may hold a password
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def describe_database(url: str) -> str:
    """What is there, as text; an empty one gets its schema at first use. Raises LedgerError if it cannot serve."""
    engine = open_engine(url, read_only=True)
    try:
        with ledger_errors(engine), engine.connect() as connection:
            empty = not sa.inspect(connection).get_table_names()
        if not empty:
            check_schema(engine)
        return f"{url_for_people(url)}: " + ("empty" if empty else f"schema {schema.HEAD}")
    finally:
        engine.dispose()


def upgrade_schema(url: str) -> str:
    """Bring the database at url to the newest schema; its revision. Raises LedgerError."""
    engine = open_engine(url)
    try:
        migrate(engine)
    finally:
        engine.dispose()
    return schema.HEAD


def migrate(engine: Engine) -> None:
    """Run the migrations that are missing, in one transaction where the database can.

    Elsewhere the tables of a migration that was cut short are dropped first. Raises LedgerError.
    """
    from alembic import command
    from alembic.util import CommandError

    config = migrations()
    try:
        with ledger_errors(engine), engine.begin() as connection:
            if engine.dialect.name == "sqlite":  # its driver begins no transaction for a CREATE TABLE
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            _see_not_newer(engine, connection)
            with _undisturbed(engine, connection):
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
    except CommandError as error:
        raise LedgerError(f"ledger {url_for_people(engine.url)}: cannot be upgraded: {error}") from error


def _see_not_newer(engine: Engine, connection: Connection) -> None:
    """Raises LedgerError for the schema of a newer slurmsched: there is no way from it to ours."""
    found = _revision(connection) if sa.inspect(connection).has_table("alembic_version") else None
    if found is not None and found > schema.HEAD:
        raise LedgerError(_wrong_schema(engine, found))


@contextmanager
def _undisturbed(engine: Engine, connection: Connection) -> Iterator[None]:
    """The body has the database for itself, without tables of a migration that was cut short."""
    where = f"ledger {url_for_people(engine.url)}: "
    with migrate_alone(connection, where) if engine.dialect.name in UNTRANSACTIONAL else nullcontext():
        if not sa.inspect(connection).has_table("alembic_version") or _revision(connection) is None:
            drop_unfinished_tables(connection, where)
        yield


def migrations() -> Any:
    """Alembic's configuration; the caller sets attributes["connection"]."""
    from alembic.config import Config

    config = Config(stdout=StringIO())  # else the stream of whoever imported alembic first
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def ledger_errors(engine: Engine) -> Iterator[None]:
    """Errors of the database leave as LedgerError: what, where, what to do."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        cause = (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
        cause = without_passwords(cause, _passwords(engine.url))
        raise LedgerError(f"ledger {url_for_people(engine.url)}: {cause}{_advice(cause)}") from error


def url_for_people(url: str | URL) -> str:
    """The URL for people: without password."""
    parsed = make_url(url)
    if (parsed.database or "").startswith("file:"):  # as open_engine opens it to read only
        parsed = parsed.set(database=unquote((parsed.database or "")[5:]), query={})
    parsed = parsed.difference_update_query(["password_file"])
    return url_without_password(parsed.render_as_string(hide_password=True))


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # its text, and the URL, may hold a password
        what = f"{url_without_password(url)} is not an SQLAlchemy URL, such as sqlite:////path/ledger.db"
        raise LedgerError(f"ledger.url {what} or mysql://user@host/database") from None
    before, _, _ = url.rpartition("@")
    if "@" in before or "?" in before:  # read otherwise than meant, and shown as host then
        what = "has an @ or ? in its password, or an @ in its options; write them as %40 and %3F"
        raise LedgerError(f"ledger.url: {url_without_password(url)} {what}, or use ledger.password_file")
    if parsed.get_backend_name() not in _DRIVERS:
        raise LedgerError(f"ledger.url: {parsed.drivername} is not offered; use {', '.join(_DRIVERS)}")
    if "+" not in parsed.drivername:
        parsed = parsed.set(drivername=_DRIVERS[parsed.drivername][0])
    return parsed


def _make_folder(url: URL) -> None:
    if not url.database or url.database == ":memory:":
        return
    refuse_root(Path(url.database))
    folder = Path(url.database).parent
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"ledger {url_for_people(url)}: folder {folder} cannot be made: {error.strerror}") from error


def _of_server(backend: str, patience_s: float, still_s: float) -> dict[str, Any]:
    """Connect arguments of pymysql or psycopg."""
    connect_s = max(1, min(BUSY_S, round(patience_s)))
    if backend == "postgresql":
        limits = {"idle_in_transaction_session_timeout": still_s, "lock_timeout": patience_s}
        settings = " ".join(f"-c {name}={limit_s * 1000:.0f}" for name, limit_s in limits.items())
        ages = {"keepalives_idle": connect_s, "keepalives_interval": connect_s, "keepalives_count": 3}
        return {"connect_timeout": connect_s, "options": settings, "tcp_user_timeout": round(patience_s * 1000), **ages}
    # MySQL, which has no such setting, reads the part in /*M! */ as a comment.
    still = f"SET SESSION wait_timeout = @@wait_timeout /*M! , SESSION idle_transaction_timeout = {still_s:.0f} */"
    waits = {"read_timeout": patience_s, "write_timeout": patience_s}
    return {"connect_timeout": connect_s, "init_command": still, **waits}


def _with_tls(url: URL) -> tuple[URL, dict[str, Any]]:
    """The URL without its ssl_ options, and the connect argument of pymysql that does what they say.

    Any of them switches TLS on, with certificate and host name checked unless they say otherwise: pymysql by itself
    checks nothing where ssl_verify_identity comes without its own ssl_ca. Raises LedgerError.
    """
    given = {name: str(value) for name, value in url.query.items() if name.startswith("ssl_")}
    if not given:
        return url, {}
    if unknown := set(given) - {f"ssl_{name}" for name in _TLS_OPTIONS}:
        raise LedgerError(f"ledger.url: unknown option {', '.join(sorted(unknown))}; see docs/ledger.md, TLS")
    if lonely := [
        f"ssl_{name}" for name in ("key", "key_password") if f"ssl_{name}" in given and not given.get("ssl_cert")
    ]:
        raise LedgerError(f"ledger.url: {lonely[0]} needs ssl_cert; see docs/ledger.md, TLS")
    try:
        context = _tls_context(given)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(f"ssl_{name}={given[f'ssl_{name}']}" for name in _TLS_OPTIONS[:4] if f"ssl_{name}" in given)
        what = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise LedgerError(
            f"ledger {url_for_people(url)}: {files or 'the ssl_ options'} cannot be used: {what}"
        ) from None
    return url.difference_update_query(list(given)), {"ssl": context}


def _tls_context(given: dict[str, str]) -> ssl.SSLContext:
    """The context that the ssl_ options describe. Raises OSError or ValueError for a file that cannot be used."""
    ca, capath, cert, key, passphrase, cipher, *_ = (given.get(f"ssl_{name}") for name in _TLS_OPTIONS)
    context = ssl.create_default_context(cafile=ca, capath=capath)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # which certificates that MariaDB makes do not pass
    context.check_hostname = all(_yes(given, name) for name in ("check_hostname", "verify_cert", "verify_identity"))
    context.verify_mode = ssl.CERT_REQUIRED if _yes(given, "verify_cert") else ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key, passphrase or "")  # without one OpenSSL would ask on the terminal
    if cipher:
        context.set_ciphers(cipher)
    return context


def _see_tls_kept(engine: Engine, context: ssl.SSLContext) -> None:
    """Raises LedgerError for a driver that sends the password in clear where a server offers no TLS."""
    driver: Any = engine.dialect.loaded_dbapi
    if driver.__name__ != "pymysql" or not hasattr(driver.connect(defer_connect=True, ssl=context), "_ssl_required"):
        what = "TLS needs pymysql 1.2 or newer; `pip install -U slurmsched[mysql]` (docs/ledger.md, TLS)"
        raise LedgerError(f"ledger {url_for_people(engine.url)}: {what}")


def _yes(options: dict[str, str], name: str) -> bool:
    """Whether the option is on, as it is where it is not given. Raises LedgerError."""
    text = options.get(f"ssl_{name}", "true").lower()
    if text not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise LedgerError(f"ledger.url: ssl_{name} must be true or false")
    return text in ("true", "1", "yes", "on")


def _passwords(url: URL) -> tuple[str, ...]:
    """What stands in the URL as a password, unless it is a name that is shown anyway."""
    options = [str(value) for name, value in url.query.items() if holds_password(f"x://?{name}={value}")]
    return tuple({str(url.password or ""), *options} - {"", url.username, url.host, url.database})


def _connecting(url: URL, file: Path | None) -> Any:
    """Connects with the password that is in the file by now. What a driver says of wrong options leaves as LedgerError,
    and nothing that quotes a password leaves."""

    def connect(dialect: Any, _: Any, arguments: Any, options: dict[str, Any]) -> Any:
        password = {"password": read_password(file)} if file else {}
        known = {*_passwords(url), *password.values()} - {url.username, url.host, url.database}
        try:
            return dialect.connect(*arguments, **options | password)
        except Exception as error:
            text = str(error) or type(error).__name__
            clean = without_passwords(text, known)
            if isinstance(error, dialect.loaded_dbapi.Error) and clean == text:
                raise
            clean = clean.splitlines()[0]
            raise LedgerError(f"ledger {url_for_people(url)}: {clean}{_advice(clean)}") from None

    return connect


def _identity(url: URL) -> tuple[int, int] | None:
    """Device and number of a SQLite file; None where there is none."""
    try:
        stat = os.stat(url.database or "")  # noqa: PTH116 - no Path for a name that may be empty
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _opened(engine: Engine) -> Any:
    """Notes with each connection which file it is of."""

    def note(_: Any, record: Any) -> None:
        record.info[_FILE] = _identity(engine.url)

    return note


def _set_pragmas(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # With WAL a power cut may cost the last cycles but never the file; the journal, which is synced, has them.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _revision(connection: Connection) -> str | None:
    return connection.scalar(sa.select(sa.column("version_num")).select_from(sa.table("alembic_version")))


def _wrong_schema(engine: Engine, found: str | None) -> str:
    where = f"ledger {url_for_people(engine.url)}: "
    if found is None:
        return where + "holds no complete schema of slurmsched; run `slurmsched db upgrade`"
    if found > schema.HEAD:
        newest = f"the newest schema of this slurmsched is {schema.HEAD}"
        return f"{where}has schema {found}, {newest}; install the newer slurmsched again"
    return where + f"has schema {found}, {schema.HEAD} is needed; run `slurmsched db upgrade`"


def _advice(cause: str) -> str:
    text = cause.lower()
    for sign, advice in (
        ("locked", "another process holds it; the next cycle tries again"),
        ("lock wait", "another process holds it; the next cycle tries again"),
        ("is full", "free some space; nothing is lost, the next cycle tries again"),
        ("unable to open", "see that the folder exists and that slurmsched may write there"),
        ("readonly", "see that slurmsched may write the file and its folder"),
        ("no such table", "run `slurmsched db upgrade`"),
        ("malformed", "move the file away and start anew: levers are in the journal, runs in sacct"),
        ("certificate", "see that ledger.url names the CA of the server's certificate, and the host that it is for"),
        ("connect", "see that the database server runs and that ledger.url is right"),
    ):
        if sign in text:
            return f"; {advice}"
    return ""
