#!/bin/bash
# Installs what this machine lacks to build (`build`), test (`test`), package (`wheel`) or measure (`bench`) Glovebox.
# Prints nothing when nothing is missing. Debian and Ubuntu get packages by apt-get; elsewhere it says which are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH

stage=${1:-build}
venv=build/venv
python=/usr/bin/python3

# Each row: how to see that it is there, then the package that brings it.
build_rows='
command cc                      gcc
file    /usr/include/stdio.h    libc6-dev
command musl-gcc                musl-tools
command ninja                   ninja-build
command pkg-config              pkg-config
library jansson                 libjansson-dev
library sqlite3                 libsqlite3-dev
library zlib                    zlib1g-dev
library libzstd                 libzstd-dev
library libcurl                 libcurl4-openssl-dev
command /usr/bin/python3        python3
module  ensurepip               python3-venv
module  pip                     python3-pip
'
test_rows='
command gcc                     gcc
command clang                   clang
fuzzer  clang                   libclang-rt-dev
command curl                    curl
command git                     git
command openssl                 openssl
command setpriv                 util-linux
command mkfs.ext4               e2fsprogs
command qemu-system-x86_64      qemu-system-x86
command zstd                    zstd
command mmdebstrap              mmdebstrap
file    /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
command busybox                 busybox-static
command dockerd                 docker.io
command podman                  podman
file    /usr/lib/podman/aardvark-dns aardvark-dns
file    /usr/lib/podman/netavark netavark
command docker-compose          docker-compose
command newuidmap               uidmap
command runsc                   runsc
command incus                   incus-client
file    /usr/libexec/incus/incusd incus-base
command zsh                     zsh
file    /usr/share/fonts/truetype/wqy/wqy-microhei.ttc fonts-wqy-microhei
command fish                    fish
command npm                     npm
'
bench_rows='
command bwrap                   bubblewrap
command runc                    runc
command dockerd                 docker.io
command nginx                   nginx-light
command wrk                     wrk
'

say() { printf 'setup: %s\n' "$*" >&2; }

is_there() { # kind name
        case $1 in
        command) PATH=$PATH:/usr/sbin:/sbin command -v "$2" >/dev/null ;;
        file) test -e "$2" ;;
        library) pkg-config --exists "$2" 2>/dev/null ;;
        module) "$python" -c "import $2" 2>/dev/null ;;
        fuzzer) has_fuzzer "$2" ;;
        esac
}

# The run-time part of libFuzzer comes in a package of its own, named differently in every release.
has_fuzzer() {
        local archive
        archive=$("$1" -print-runtime-dir 2>/dev/null) || return 1
        compgen -G "$archive/libclang_rt.fuzzer*.a" >/dev/null
}

missing_packages() { # rows
        local kind name package
        while read -r kind name package; do
                test -n "$kind" || continue
                is_there "$kind" "$name" || echo "$package"
        done <<<"$1" | sort -u
}

as_root() {
        if test "$(id -u)" = 0; then "$@"; else sudo "$@"; fi
}

may_be_root() {
        test "$(id -u)" = 0 && return 0
        command -v sudo >/dev/null || return 1
        sudo -n true 2>/dev/null || test -t 0
}

apt_install() { # packages
        local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)
        as_root "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null 2>&1 && return 0
        as_root "${apt[@]}" update
        three_times as_root "${apt[@]}" install -y --no-install-recommends "$@"
}

# Incus is in Debian since 13. Debian 12 has it in its backports, whose entry is made of that of the archive itself.
add_backports() {
        local suite=bookworm entry list=/etc/apt/sources.list.d/glovebox-backports
        grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release || return 0
        grep -rqs "$suite-backports" /etc/apt/sources.list /etc/apt/sources.list.d --include='*.list' \
                --include='*.sources' && return 0
        entry=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
                awk -v RS= -v suite="$suite" '$0 ~ "(^|\n)Suites:[^\n]* " suite "( |\n|$)" { print; exit }' |
                sed "s/^Suites:.*/Suites: $suite-backports/")
        if test -n "$entry"; then
                list=$list.sources
        else
                entry=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
                        grep -E "^deb .* $suite main" | head -n 1 | sed "s/ $suite main/ $suite-backports main/")
                list=$list.list
        fi
        test -n "$entry" || { say "no entry of $suite in apt's sources to make that of its backports of"; return 1; }
        printf '%s\n' "$entry" | as_root tee "$list" >/dev/null
}

install_packages() { # rows
        local packages
        mapfile -t packages < <(missing_packages "$1")
        test ${#packages[@]} -gt 0 || return 0
        if ! command -v apt-get >/dev/null || ! may_be_root; then
                say "these packages are missing and cannot be installed from here: ${packages[*]}"
                say "install them as root (Debian, Ubuntu: apt-get install ${packages[*]}), then run make again"
                exit 1
        fi
        say "installing ${packages[*]}"
        case " ${packages[*]} " in *" incus"*) add_backports || exit 1 ;; esac
        apt_install "${packages[@]}" || { say "apt-get could not install ${packages[*]}: see above"; exit 1; }
        mapfile -t packages < <(missing_packages "$1")
        test ${#packages[@]} -eq 0 || { say "still missing after the installation: ${packages[*]}"; exit 1; }
}

is_at_least_one() { # version
        local major=${1%%.*}
        [[ $major =~ ^[0-9]+$ ]] && test "$major" -ge 1
}

ensure_venv() { # directory
        local directory=${1:-$venv} have want
        want=$("$python" -c 'import sys; print(sys.version_info[:2])')
        have=$("$directory/bin/python" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null || true)
        test "$have" = "$want" && return 0
        rm -rf "$directory"
        mkdir -p "$(dirname "$directory")"
        "$python" -m venv "$directory"
}

# The distribution's meson where it is new enough; otherwise one of our own.
ensure_meson() {
        is_at_least_one "$(PATH=$venv/bin:$PATH meson --version 2>/dev/null || true)" && return 0
        local candidate
        candidate=$(apt-cache policy meson 2>/dev/null | awk '/Candidate:/ { print $2 }')
        if is_at_least_one "${candidate:-0}" && may_be_root; then
                say "installing meson"
                apt_install meson
        else
                say "installing meson into $venv (the distribution has ${candidate:-none}, 1.0 or later is needed)"
                ensure_venv
                three_times "$venv/bin/python" -m pip install --quiet 'meson>=1.0'
        fi
}

# Downloads are cut or damaged now and then: three tries, with a pause between them.
three_times() { # command
        local try
        for try in 1 2 3; do
                "$@" && return 0
                test $try = 3 && return 1
                say "that failed; trying again (${try} of 2) in $((try * 10)) s"
                sleep $((try * 10))
        done
}

# Python packages of the tests, or of the benchmark; installed again only when a list changed. Beside requirements.txt,
# constraints.txt pins what those packages need in turn: pip then looks at one version of each instead of trying many.
# Most of their modules are never imported, so pip compiles none.
ensure_requirements() { # list, directory
        local constraints=${1/requirements/constraints} pip=("$2/bin/python" -m pip install --quiet --no-compile -r "$1")
        if test -e "$constraints"; then pip+=(-c "$constraints"); else constraints=/dev/null; fi
        ensure_venv "$2"
        cat "$1" "$constraints" | cmp -s - "$2/requirements.done" && return 0
        say "installing what $1 lists into $2"
        three_times "${pip[@]}"
        cat "$1" "$constraints" >"$2/requirements.done"
}

# MCP clients of the tests: npm packages (one of them is the Node that they need), and both generations of the Python one.
ensure_npm_clients() {
        mkdir -p build/mcp
        cmp -s tests/mcp/package.json build/mcp/package.done && return 0
        say "installing what tests/mcp/package.json lists into build/mcp"
        cp tests/mcp/package.json build/mcp/package.json
        three_times npm install --prefix build/mcp --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null
        cp tests/mcp/package.json build/mcp/package.done
}

# They wait for downloads most of the time. Fails if one of them fails, after all have ended.
all_at_once() { # commands, each in one word
        local command pid pids=() failed=0
        for command in "$@"; do
                $command &
                pids+=($!)
        done
        for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
        return $failed
}

case $stage in
build) install_packages "$build_rows"; ensure_meson ;;
test)
        install_packages "$test_rows"
        tests/vm/fetch-kernel.sh || say "no kernel for the virtual machine: the part 'vm' of the tests will fail"
        all_at_once "ensure_requirements tests/requirements.txt $venv" \
                "ensure_requirements tests/frameworks/requirements.txt build/frameworks-venv" \
                "ensure_requirements tests/mcp/requirements-modern.txt build/mcp/modern-venv" \
                "ensure_requirements tests/mcp/requirements-legacy.txt build/mcp/legacy-venv" \
                ensure_npm_clients
        ;;
wheel) ensure_requirements tests/requirements.txt "$venv" ;;
bench)
        install_packages "$bench_rows"
        ensure_requirements bench/requirements.txt build/bench-venv
        ;;
*) say "usage: tools/setup.sh build|test|wheel|bench"; exit 2 ;;
esac
