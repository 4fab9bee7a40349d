"""The whole suites of ledger and leader lease on the lab's MariaDB and PostgreSQL."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.ledger_store import LedgerStore
from slurmsched.errors import LedgerError
from tests.live.lab import run
from tests.unit.db.lease_suite import LeaseSuite
from tests.unit.db.ledger_suite import CutSuite, LedgerSuite, cycle, emptied, missing_tables, pending

pytestmark = [pytest.mark.live, pytest.mark.newest]
MARIADB = "mysql+pymysql://slurmsched:slurmsched@127.0.0.1/slurmsched?charset=utf8mb4"
POSTGRESQL = "postgresql+psycopg://slurmsched:slurmsched@127.0.0.1/slurmsched"
# ca.pem, which signed server.pem for 127.0.0.1 and no other name; wrong.pem, which did not.
TLS = Path("/run/ledger-tls")
MARIADB_TLS = MARIADB.replace("127.0.0.1", "127.0.0.1:3307")  # one of its own: slurmdbd's client would refuse this CA
CERTIFICATES = """
set -eu
rm -rf /run/ledger-tls && mkdir /run/ledger-tls && cd /run/ledger-tls
new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "$@" 2>/dev/null; }
for name in ca wrong; do new -x509 -keyout $name.key -out $name.pem -subj "/CN=$name"; done
new -keyout server.key -out server.csr -subj /CN=server
echo 'subjectAltName = IP:127.0.0.1' >names
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile names -out server.pem 2>/dev/null
for user in mysql postgres; do install -o $user -m 0400 server.key $user.key; done
cat >init.sql <<'SQL'
CREATE DATABASE IF NOT EXISTS slurmsched CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS slurmsched@'127.0.0.1' IDENTIFIED BY 'slurmsched';
GRANT ALL ON slurmsched.* TO slurmsched@'127.0.0.1';
SQL
install -d -o mysql /run/ledger-tls/data
mariadb-install-db --no-defaults --user=mysql --datadir=$PWD/data --skip-test-db >/dev/null 2>&1
setsid mariadbd --no-defaults --user=mysql --datadir=$PWD/data --port=3307 --socket=$PWD/data/socket \
    --skip-name-resolve --init-file=$PWD/init.sql --ssl-cert=$PWD/server.pem --ssl-key=$PWD/mysql.key \
    --pid-file=$PWD/data/pid </dev/null >/var/log/mariadb-tls.log 2>&1 &
for _ in $(seq 100); do
    mariadb-admin --no-defaults --skip-ssl --silent --socket=$PWD/data/socket ping 2>/dev/null && exit 0
    sleep 0.1
done
tail -n 5 /var/log/mariadb-tls.log
exit 1
"""
IN_POSTGRESQL = """cd / && setpriv --reuid postgres --regid postgres --init-groups psql -qX <<'SQL'
ALTER SYSTEM SET ssl = on;
ALTER SYSTEM SET ssl_cert_file = '/run/ledger-tls/server.pem';
ALTER SYSTEM SET ssl_key_file = '/run/ledger-tls/postgres.key';
SELECT pg_reload_conf() \\g /dev/null
SQL"""


@pytest.fixture(scope="module")
def postgresql(lab: None) -> Iterator[str]:
    """The lab starts its PostgreSQL only when asked to."""
    run("labctl", "start", "postgres")
    yield POSTGRESQL
    run("labctl", "stop", "postgres")


class TestMariaDb(LedgerSuite, CutSuite, LeaseSuite):
    """Every rule of the suite, on the server that slurmdbd uses too."""

    @pytest.fixture
    def ledger_url(self, lab: None) -> Iterator[str]:
        with emptied(MARIADB):
            yield MARIADB

    def test_tables__hold_any_script(self, ledger_url: str) -> None:
        """utf8mb4, whatever the default of the server."""
        engines.upgrade_schema(ledger_url)
        engine = engines.open_engine(ledger_url)
        with engine.connect() as connection:
            query = "SELECT DISTINCT character_set_name FROM information_schema.columns WHERE table_schema = DATABASE()"
            sets = connection.exec_driver_sql(
                f"{query} AND table_name <> 'alembic_version' AND character_set_name IS NOT NULL"
            )
            found = sets.scalars().all()
        engine.dispose()
        assert found == ["utf8mb4"]

    def test_upgrade__drops_no_table_with_rows(self, ledger_url: str, reopen: Callable[[], LedgerStore]) -> None:
        """A ledger whose revision was lost: said which table has rows, and nothing is touched."""
        cycle(reopen(), 1100.0, pending())
        engine = engines.open_engine(ledger_url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM alembic_version")
        engine.dispose()
        with pytest.raises(LedgerError, match=r"table chores has rows, .* restore the table alembic_version"):
            engines.upgrade_schema(ledger_url)
        assert missing_tables(ledger_url) == set()


class TestPostgreSql(LedgerSuite, LeaseSuite):
    """Every rule of the suite."""

    @pytest.fixture
    def ledger_url(self, postgresql: str) -> Iterator[str]:
        with emptied(postgresql):
            yield postgresql


@pytest.fixture(scope="module")
def tls(postgresql: str) -> Iterator[None]:
    """Both servers with a certificate of a CA made for this; all is set back."""
    run("sh", "-c", CERTIFICATES)
    run("sh", "-c", IN_POSTGRESQL)
    yield
    reset = "setpriv --reuid postgres --regid postgres --init-groups psql -qXc 'ALTER SYSTEM RESET ALL'"
    run("sh", "-c", f"cd / && kill $(cat {TLS}/data/pid); {reset}")


def over_tls(url: str, options: str, ca: str) -> str:
    """The cipher of a connection. Raises LedgerError."""
    engine = engines.open_engine(f"{url}{options.format(ca=TLS / ca)}")
    query = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    if engine.dialect.name == "postgresql":
        query = "SELECT pid, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    try:
        with engines.ledger_errors(engine), engine.connect() as connection:
            return str(connection.exec_driver_sql(query).one()[1] or "")
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (MARIADB_TLS, "&ssl_ca={ca}"),
        (MARIADB_TLS, "&ssl_ca={ca}&ssl_verify_cert=true&ssl_verify_identity=true"),
        (POSTGRESQL, "?sslmode=verify-full&sslrootcert={ca}"),
    ],
)
def test_tls__with_the_servers_ca_and_no_other(tls: None, tmp_path: Path, url: str, options: str) -> None:
    """As docs/install.md says, with the password in a file; a CA that did not sign is refused, and a name not meant."""
    (file := tmp_path / "password").write_text("slurmsched\n")
    file.chmod(0o600)
    url, options = url.replace(":slurmsched@", "@"), f"{options}&password_file={file}"
    assert over_tls(url, options, "ca.pem").startswith(("TLS_", "ECDHE"))
    with pytest.raises(LedgerError, match=r"certificate verify failed.*; see that ledger\.url names the CA"):
        over_tls(url, options, "wrong.pem")
    with pytest.raises(LedgerError, match=r"ertificate"):
        over_tls(url.replace("127.0.0.1", "localhost"), options, "ca.pem")


def test_install_page__as_written(lab: None) -> None:
    """docs/install.md's own lines, with the lab's database: it is filled, by who has no password in the URL."""
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text().partition("## Ledger")[2].partition("## ")[0]
    lines = [line.strip() for line in page.splitlines() if line.startswith(" " * 8)]
    made, owned, _, *settings, upgrade = lines
    mine = "/tmp/ledger-as-written"
    text = "\n".join(settings).replace("db.example.org", "127.0.0.1").replace("/etc/slurmsched", mine)
    script = f"""set -eu
    rm -rf {mine}; install -d -o slurmsched {mine}
    {made.replace("/etc/slurmsched", mine)}
    {owned.replace("/etc/slurmsched", mine)}
    echo slurmsched >{mine}/ledger.password
    cat >{mine}/slurmsched.toml
    export SLURMSCHED_CONFIG={mine}/slurmsched.toml
    {upgrade}
    ls {mine}
    chmod o+r {mine}/ledger.password
    {upgrade} 2>&1 || echo exit $?"""
    with emptied(MARIADB):
        done = subprocess.run(["sh", "-c", script], input=text, capture_output=True, text=True, check=True, timeout=60)
        assert missing_tables(MARIADB) == set()
    shown = f"mysql://slurmsched@127.0.0.1/slurmsched: schema {schema.HEAD}, up to date"
    assert done.stdout.splitlines()[:3] == [shown, "ledger.password", "slurmsched.toml"]
    assert f"password_file {mine}/ledger.password: others may read or write it (-rw----r--)" in done.stdout
    assert done.stdout.splitlines()[-1] == f"exit {LedgerError.exit_code}"
