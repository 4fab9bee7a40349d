# Fed to sh inside the system, with a loopback of its own: databases, accounts, QOS; all stopped again.
set -eu
cat >/etc/mysql/mariadb.conf.d/99-lab.cnf <<'CNF'
[mariadbd]
bind-address = 127.0.0.1
character-set-server = utf8mb4
innodb_buffer_pool_size = 128M
innodb_log_file_size = 64M
innodb_lock_wait_timeout = 900
innodb_flush_log_at_trx_commit = 0
loose_innodb_snapshot_isolation = OFF # slurmdbd would end at a write conflict
CNF
labctl start munge mariadb postgres
mariadb <<'SQL'
CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm', slurm@localhost IDENTIFIED BY 'slurm';
CREATE USER slurmsched@'127.0.0.1' IDENTIFIED BY 'slurmsched', slurmsched@localhost IDENTIFIED BY 'slurmsched';
CREATE DATABASE slurm_acct_db CHARACTER SET utf8mb4;
CREATE DATABASE slurmsched CHARACTER SET utf8mb4;
GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1', slurm@localhost;
GRANT ALL ON slurmsched.* TO slurmsched@'127.0.0.1', slurmsched@localhost;
SQL
cd /
setpriv --reuid postgres --regid postgres --init-groups psql -q <<'SQL'
CREATE ROLE slurmsched LOGIN PASSWORD 'slurmsched';
CREATE DATABASE slurmsched OWNER slurmsched;
SQL

# Enough of a slurm.conf for sacctmgr; `up` writes the real one.
cat >/etc/slurm/slurm.conf <<'CONF'
ClusterName=lab
SlurmctldHost=lab(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
NodeName=n1
PartitionName=gpu Nodes=n1
CONF
labctl start slurmdbd
add() { sacctmgr -iQ add "$@"; }
add cluster lab
add qos high priority=100
for pair in science:root physics:science biology:science industry:root; do
    add account "${pair%:*}" parent="${pair#*:}" cluster=lab
done
for pair in alice:physics bob:physics carol:biology dave:industry; do
    add user "${pair%:*}" account="${pair#*:}" cluster=lab
done
add user slurmsched account=root cluster=lab adminlevel=Operator
sacctmgr -iQ modify account root set qos=normal,high where cluster=lab
labctl stop slurmdbd postgres mariadb munge
rm -f /var/log/slurm/* /var/log/mariadb.log # a lab's logs begin with the lab
