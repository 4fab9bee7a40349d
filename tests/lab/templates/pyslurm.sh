# Fed to sh inside a throw-away copy of the system: one pyslurm wheel for its Slurm into /wheels.
set -eu
version=$(slurmctld -V | sed 's/.* //')
major=${version%%.*} minor=${version#*.}
minor=$(echo "${minor%%.*}" | sed 's/^0*//')
SLURM_LIB_DIR=/usr/lib/$(gcc -print-multiarch)/slurm-wlm
export SLURM_LIB_DIR
python3 -m venv /tmp/build
cd /tmp
pip=/tmp/build/bin/pip
if SLURM_INCLUDE_DIR=/usr/include $pip wheel --no-deps -w /wheels "pyslurm==$major.$minor.*"; then exit; fi

release=$($pip index versions pyslurm | sed -n '1s/.*(\(.*\))/\1/p')
echo "no pyslurm $major.$minor: building $release against Slurm $version" >&2
# Its setup refuses other headers by version number: give it the system's under the number it wants.
minor=${release#*.}
number=$(printf '0x%02x%02x00' "${release%%.*}" "${minor%%.*}")
mkdir -p include/slurm
ln -s /usr/include/slurm/* include/slurm/
rm include/slurm/slurm_version.h
sed "s/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER $number/" \
    /usr/include/slurm/slurm_version.h >include/slurm/slurm_version.h
# SLURM_BACKWARD_COMPAT: job ids stay integers. The rest renames what 26.05 renamed or dropped.
export SLURM_INCLUDE_DIR=/tmp/include CFLAGS="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf \
-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=-2 -fpermissive"
$pip wheel --no-deps -w /wheels "pyslurm==$release"
