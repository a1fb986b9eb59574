#!/bin/sh
# Installs the given Debian packages without starting any daemon: the packages
# of Open vSwitch and OVN start theirs, and a test machine wants none of them.
set -eu

policy=/usr/sbin/policy-rc.d
saved=

restore() {
    rm -f "$policy"
    if [ -n "$saved" ]; then
        mv -f "$saved" "$policy"
    fi
}

if [ -e "$policy" ] || [ -L "$policy" ]; then
    saved="$policy.saved-$$"
    mv "$policy" "$saved"
fi
trap restore EXIT
trap 'exit 1' INT TERM HUP
# 101: "action forbidden by policy", see invoke-rc.d(8).
printf '#!/bin/sh\nexit 101\n' > "$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -q --no-install-recommends"
$install "$@" || { apt-get update -q && $install "$@"; }
