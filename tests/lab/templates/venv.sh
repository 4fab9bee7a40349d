# Fed to sh inside a throw-away copy of the system, /opt/venv being the new layer. REQUIREMENTS and CONSTRAINTS by environment.
set -eu
python3 -m venv /opt/venv
printf '%s\n' "$CONSTRAINTS" >/tmp/constraints.txt
# shellcheck disable=SC2086 # lists
[ -z "$REQUIREMENTS" ] || printf '%s\n' "$REQUIREMENTS" | /opt/venv/bin/pip install --quiet --constraint /tmp/constraints.txt -r /dev/stdin
for wheel in /wheels/*.whl; do
    [ ! -e "$wheel" ] || /opt/venv/bin/pip install --quiet --no-deps "$wheel"
done
# The checkout is bound to /src, its metadata (entry points) written to /opt/slurmsched: edits count at once.
printf '/opt/slurmsched\n/src\n' >"$(echo /opt/venv/lib/python3*/site-packages)/slurmsched-lab.pth"
cat >/opt/venv/bin/slurmsched <<'SCRIPT'
#!/opt/venv/bin/python
import sys

from slurmsched.cli.main import main

if __name__ == "__main__":  # a worker process imports this file anew
    sys.exit(main())
SCRIPT
chmod 755 /opt/venv/bin/slurmsched
