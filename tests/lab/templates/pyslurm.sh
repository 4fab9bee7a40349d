# Fed to sh inside a throw-away copy of the system: one pyslurm wheel for its Slurm into /wheels.
set -eu
version=$(slurmctld -V | sed 's/.* //')
major=${version%%.*} minor=${version#*.}
minor=$(echo "${minor%%.*}" | sed 's/^0*//')
include=/usr/include
SLURM_LIB_DIR=/usr/lib/$(gcc -print-multiarch)/slurm-wlm
export SLURM_LIB_DIR
python3 -m venv /tmp/build
cd /tmp
if /tmp/build/bin/pip download --quiet --no-deps --no-binary :all: "pyslurm==$major.$minor.*" 2>/tmp/none; then
    SLURM_INCLUDE_DIR=$include /tmp/build/bin/pip wheel --no-deps -w /wheels pyslurm-*.tar.gz
    exit
fi
echo "no pyslurm $major.$minor: building the newest one against Slurm $version" >&2
/tmp/build/bin/pip download --quiet --no-deps --no-binary :all: pyslurm
source=$(echo pyslurm-*.tar.gz)
release=${source#pyslurm-}
newest_minor=${release#*.}
# Its setup refuses other headers by version number: give it the system's under the number it wants.
mkdir -p include/slurm
ln -s /usr/include/slurm/* include/slurm/
rm include/slurm/slurm_version.h
number=$(printf '0x%02x%02x00' "${release%%.*}" "${newest_minor%%.*}")
sed "s/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER $number/" \
    /usr/include/slurm/slurm_version.h >include/slurm/slurm_version.h
# SLURM_BACKWARD_COMPAT: job ids stay integers. The rest renames what 26.05 renamed or dropped.
export SLURM_INCLUDE_DIR=/tmp/include CFLAGS="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf \
-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=-2 -fpermissive"
/tmp/build/bin/pip wheel --no-deps -w /wheels "$source"
