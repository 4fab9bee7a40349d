#!/bin/sh
# Runs first in fresh namespaces: makes a root folder a whole machine, then runs a command in it as pid 1.
# usage: enter.sh ROOT LAYERS WORK [SRC:DST:ro|rw]... -- COMMAND...
#   LAYERS  read-only folders joined by ':', uppermost first; "" = ROOT is used as it is
#   WORK    folder for what is written over LAYERS
set -eu
root=$1 layers=$2 work=$3
shift 3

overlay() {
    mkdir -p "$work/upper" "$work/work" &&
        mount -t overlay overlay -o "lowerdir=$layers,upperdir=$work/upper,workdir=$work/work" "$root"
}
copy() { # where the kernel or the file system refuses overlays; lowest layer first
    for layer in $(echo "$layers" | tr ':' '\n' | tac); do cp -a --reflink=auto "$layer/." "$root/"; done
    mount --bind "$root" "$root"
}
if [ -z "$layers" ]; then
    mount --bind "$root" "$root"
elif ! overlay 2>/dev/null; then
    mount -t tmpfs lab "$work"
    overlay || { umount "$work" && copy; }
fi

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=1777 lab "$root/tmp"
mount -t tmpfs -o mode=755,nosuid lab "$root/dev"
device() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
device null 1 3; device zero 1 5; device full 1 7; device random 1 8; device urandom 1 9; device tty 5 0
for gpu in 0 1 2 3 4 5 6 7; do device "fakegpu$gpu" 1 3; done # gres.conf wants character devices
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 lab "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for std in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${std#*:}" "$root/dev/${std%:*}"; done

while [ "$1" != -- ]; do
    src=${1%%:*} mode=${1##*:} dst=${1#*:}
    dst=$root${dst%:*}
    if [ -d "$src" ]; then mkdir -p "$dst"; else mkdir -p "${dst%/*}"; [ -e "$dst" ] || : >"$dst"; fi
    mount --bind "$src" "$dst"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$dst"
    shift
done
shift

hostname lab
cd "$root"
mkdir -p .host
pivot_root . .host
exec chroot . sh -c 'umount -l /.host; rmdir /.host; exec "$@"' lab "$@"
