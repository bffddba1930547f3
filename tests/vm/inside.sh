#!/bin/bash
# Runs in the test machine as root: the tests marked `vm` on a pure cgroup v2 kernel, as root and as an ordinary user.
# What it writes below /results is read by the host from the disk image afterwards.
cd /repo || exit 1
export GLOVEBOX=/repo/build/glovebox GLOVEBOX_TEST_SLOWNESS=10 PYTHONDONTWRITEBYTECODE=1 TERM=dumb
export GLOVEBOX_TEST_HAS_QUOTAS=1 # of projects, on its disk (tests/vm/disk.py)
export PYTHONPATH=/repo/build/venv/site-packages
{
        uname -r
        cat /sys/fs/cgroup/cgroup.controllers
} >/results/machine

# The unit tests that touch control groups speak TAP on standard output.
for unit in build/tests/unit/test_cgroup*; do
        test -x "$unit" || continue
        "$unit" >"/results/$(basename "$unit").tap" 2>&1 || echo "exit status $?" >>"/results/$(basename "$unit").tap"
        echo "vm: $(basename "$unit") done"
done

directories=()
for directory in tests/box tests/nursery tests/escape tests/chaos; do
        test -d "$directory" && directories+=("$directory")
done
python3 -m pytest -p no:cacheprovider -m vm --timeout 120 -v --junitxml=/results/pytest.xml "${directories[@]}" \
        </dev/null 2>&1 | tee /results/pytest.log
echo "${PIPESTATUS[0]}" >/results/pytest.status
