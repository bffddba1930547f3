#!/bin/bash
# Fetches a kernel package for the virtual machine and unpacks it below build/vm/kernel; nothing is installed on this
# machine. Done once: build/vm/kernel/release names the kernel that is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
place=$PWD/build/vm/kernel
test -s "$place/release" && exit 0

command -v apt-get >/dev/null || { echo "vm: apt-get is needed to fetch a kernel package" >&2; exit 1; }

# The package that a meta package (Debian's cloud kernel, Ubuntu's virtual one) points to today.
find_image() {
        local meta
        for meta in linux-image-cloud-amd64 linux-image-virtual; do
                apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ { print $2; found = 1; exit }
                                                             END { exit !found }' && return 0
        done
        return 1
}

image=$(find_image) || {
        if test "$(id -u)" = 0; then apt-get -qq update; else sudo -n apt-get -qq update; fi
        image=$(find_image)
} || { echo "vm: no kernel package found by apt-get (linux-image-cloud-amd64 or linux-image-virtual)" >&2; exit 1; }
packages=("$image")
modules=${image/linux-image/linux-modules}
apt-cache show "$modules" >/dev/null 2>&1 && packages+=("$modules")

fresh=$(mktemp -d "${TMPDIR:-/tmp}/glovebox-kernel-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
echo "vm: fetching ${packages[*]}" >&2
(cd "$fresh" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "${packages[@]}")
for package in "$fresh"/*.deb; do
        dpkg-deb -x "$package" "$fresh/tree"
done
rm -rf "$place"
mkdir -p "$place"
cp "$fresh"/tree/boot/vmlinuz-* "$place/vmlinuz"
cp -r "$(dirname "$(find "$fresh/tree" -name kernel -path '*/modules/*' -print -quit)")" "$place/modules"
echo "$image" >"$place/release"
