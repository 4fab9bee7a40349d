# Fed to sh inside a fresh root: packages, users, folders. Starts nothing.
# PACKAGES comes by environment.
set -eu
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/lab
printf '127.0.0.1 localhost lab\n' >/etc/hosts
echo lab >/etc/hostname
apt-get -qq update
# shellcheck disable=SC2086 # a list
apt-get -qq install -y --no-install-recommends $PACKAGES
apt-get -qq autoclean # the cached packages of former days
rm -rf /var/lib/apt/lists/*

for user in alice bob carol dave eve slurmsched; do useradd -m -s /bin/bash "$user"; done
mkdir -p /opt/venv /opt/slurmsched /src /wheels /var/cache/pip /run/slurm /run/munge /run/mysqld
install -d -o slurm -g slurm /run/slurm /var/log/slurm /var/lib/slurm/slurmctld
install -d -o munge -g munge /run/munge
install -d -o mysql -g mysql /run/mysqld
install -d -m 1777 /var/cache/slurmsched-numba
for node in n1 n2 n3 n4; do mkdir -p "/var/spool/slurmd/$node"; done
