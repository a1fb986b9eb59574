# Waits until FILE contains TEXT: await TEXT FILE
await() {
    tries=400
    until grep -q -e "$1" "$2" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "in vain: $1" >&2; return; }
        sleep 0.05
    done
}
# Waits until there are no such files any more.
gone() {
    tries=400
    while [ -e "$1" ] || [ -e "${2-$1}" ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "still there: $*" >&2; return; }
        sleep 0.05
    done
}
# A command to the server.
server() { ovs-appctl -t "$PWD/server.ctl" "$@"; }
# A client in the background that writes to the file `log`.
detach() { ovsdb-client --detach --no-chdir --pidfile=bg.pid "$@" >log; }
# A command to it, and its end.
bg() { ovs-appctl -t "$PWD/ovsdb-client.$(cat bg.pid).ctl" "$@"; }
end() {
    ctl="$PWD/ovsdb-client.$(cat bg.pid).ctl"
    ovs-appctl -t "$ctl" exit
    gone bg.pid "$ctl"
}
# A transaction on the server's database.
txn() { ovsdb-client transact "[\"Odd\",$1]" >/dev/null; }
# What it has written.
log() { cat log; }
