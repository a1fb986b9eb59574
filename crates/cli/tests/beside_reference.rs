//! The server beside the reference, option by option and command by command. Where the installed
//! reference is older than what Weir follows, COMPAT.md says so and these scripts go round it.

use crate::beside::Beside;

/// The script does the same on both sides.
fn alike(script: &str) {
    if let Some(beside) = Beside::new() {
        beside.alike(script);
    }
}

#[test]
fn options_and_mistakes_in_them() {
    alike(
        "
        run --unknown; run -Z; run --remote; run --detach=3; run --no; run --sync; run --mon=x
        run -p; run -c; run -C; run --user; run --unixctl; run --run; run --active=1
        run -V; run --version; run --vers; run -V --bogus; run --bogus -V
        run --verb=off --run=true; run --run true; run --run=true --no-s --over
        run --sync-exclude-tables=a:b --run=true
        run '--sync-exclude-tables=a:b c:d' --run=true
        run --user=: --run='id -u'; run --user= --run='id -u'
        ",
    );
}

#[test]
fn words_of_verbosity() {
    alike(
        "
        for v in foo foo:bar jsonrpc jsonrpc:console jsonrpc:console:info jsonrpc,console,info \\
            'jsonrpc console info' jsonrpc:reconnect console:syslog info:warn any:any:off \\
            ANY:CONSOLE:OFF PATTERN PATTERN:console PATTERN:foo:bar pattern:console:%m \\
            FACILITY FACILITY: FACILITY:foo FACILITY:local3 facility:LOCAL3 FACILITY:local3:x \\
            console:emer console:bogus off syslog:off:console dest:console:off; do
            run \"-v$v\" --run=true
        done
        run --verbose=foo --run=true
        run '-vPATTERN:console:%A|%c|%p|%m|%n%%|%-10p|%5p|%t|%T|%q' -vfile:off --log-file --run=true
        # Words of dates in both zones, less what a moment changes.
        export TZ=ABC-5:30
        words() { sed -E 's/[A-Z][a-z]+day/DAY/g; s/[A-Z][a-z]{2} [0-9]+/MONTH N/g; s/[0-9]{2}:/N:/g'; }
        run '-vPATTERN:console:d %d{%Z %z %C %%%n%t%A %b %e %H:%M:} D %D{%Z %z %A %b %e %H:%M:}|%m' \
            -vfile:off --log-file --run=true | words
        run '-vPATTERN:console:%40D{%C %! %i %E é}|%-30d{%05C %^Z %#Z}|%D{%10C}' -vfile:off \
            --log-file --run=true
        ",
    );
}

#[test]
fn log_files_and_the_system_log() {
    alike(
        "
        mkdir sub
        run --log-file --run=true; run --log-file=$PWD/sub/x.log --run=true
        run --log-file=$PWD/no/x.log --run=true; run --log-file=$PWD/sub --run=true
        run -vvlog:off --log-file=$PWD/quiet.log --run=true
        run --log-file=$PWD/1.log --log-file=$PWD/2.log --run=true
        run --log-file=$PWD/1.log -vfile:off --log-file=$PWD/1.log --run=true
        run -vconsole:off --log-file=$PWD/3.log --run=true
        for i in *.log sub/*; do echo \"-- $i\"; cat $i; done
        for method in null foo libc unix:$PWD/x unix: udp:127.0.0.1:514 udp:127.0.0.1 udp:foo ''; do
            run --syslog-method=$method --run=true
        done
        run --syslog-method=null --syslog-method=foo --run=true
        run --syslog-target=127.0.0.1:514 --run=true; run --syslog-target=foo --run=true
        OVS_SYSLOG_METHOD=foo run --run=true
        OVS_SYSLOG_METHOD=foo run --syslog-method=null --run=true
        ",
    );
}

#[test]
fn commands_to_run_and_admin_sockets() {
    alike(
        "
        run --run=false; run --run='exit 3'; run --run='kill -9 $$'; run --run='kill -TERM $$'
        run --run=no-such-program; run --run='echo hello; cat'
        run --unixctl=none --run=ls; run --unixctl=x --run=ls; run --unixctl=./z --run=ls
        mkdir sub
        run --unixctl=sub/x --run='ls sub'; run --unixctl=$PWD/sub/y --run='ls sub'
        run --unixctl=nodir/x --run=ls; run --unixctl=sub --run=ls
        OVS_RUNDIR=/nonexistent run --run=ls
        long=$(printf 'a%.0s' $(seq 60)); mkdir -p $long/$long
        run --unixctl=$PWD/$long/$long/x --run=\"ovs-appctl -t $PWD/$long/$long/x list-dbs-not\"
        run --detach --run='sleep .2; touch ran'; wait_for 'test -e ran'; wait_for '! ls | grep -q ctl'
        ",
    );
}

#[test]
fn pid_files() {
    alike(
        "
        run --pidfile --run=ls; run --pidfile=x --run=ls; run --pidfile=$PWD/y --run=ls
        run --pidfile=no/y --run=ls
        mkdir sub; run --pidfile=sub --run=ls; run --pidfile= --run=ls
        echo 1 > stale; run --pidfile=stale --run=ls; : > empty; run --pidfile=empty --run=ls
        ln -s nothere link; run --pidfile=link --run=ls
        echo x > t.pid.tmp; run --pidfile=t.pid --run='wc -l < t.pid'
        start --no-dbs; pid=$(cat ovsdb-server.pid)
        run --pidfile --run=ls; run --pidfile --detach
        run --pidfile --overwrite-pidfile --run=ls
        kill $pid; wait_for '! kill -0 $pid 2>/dev/null'
        ",
    );
}

#[test]
fn starts_that_fail_in_the_background() {
    alike(
        "
        run --detach --remote=punix:no/x --unixctl=x.ctl --pidfile
        ovs-appctl -t $PWD/x.ctl exit; wait_for '! test -e x.ctl'
        run --detach --unixctl=no/x; run --detach --pidfile=no/x
        run --detach --monitor --pidfile=no/x; run --detach --monitor --unixctl=no/x --pidfile
        run --detach --log-file=$PWD/no/x
        ",
    );
}

#[test]
fn signals_and_what_they_leave() {
    alike(
        "
        for s in TERM INT HUP ALRM; do
            # A shell ignores INT for what runs in its background.
            env --default-signal=INT ovsdb-server --no-dbs --remote=punix:s --pidfile --log-file=$PWD/$s.log -vconsole:off &
            wait_for 'test -e s'; wait_for \"grep -q 'Open vSwitch' $s.log\"
            kill -$s $!; wait $!; echo $s $?; ls; cat $s.log
        done
        create; start d.db --remote=punix:s --monitor
        readlink /proc/$(cat ovsdb-server.pid)/cwd; cat /proc/$(cat ovsdb-server.pid)/comm
        monitor=$(awk '{ print $4 }' /proc/$(cat ovsdb-server.pid)/stat)
        kill -9 $(cat ovsdb-server.pid); wait_for '! kill -0 $monitor 2>/dev/null'; ls; log | sed 's,.*|0[0-9]*|,,' | sort
        ",
    );
}

#[test]
fn admin_commands_that_every_daemon_has() {
    alike(
        "
        start --no-dbs
        admin vlog/set; admin vlog/set foo; admin vlog/set any:file:info jsonrpc:console:warn
        admin vlog/set any:file:info foo jsonrpc:console:err
        admin vlog/list | grep -E 'jsonrpc|console'; admin vlog/list x
        admin vlog/list-pattern x; admin vlog/set PATTERN; admin vlog/set PATTERN:
        admin vlog/set FACILITY; admin vlog/set FACILITY:bad; admin vlog/set FACILITY:daemon
        admin vlog/set 'PATTERN:syslog:%m'; admin vlog/list-pattern
        admin vlog/disable-rate-limit jsonrpc bogus; admin vlog/list | grep disabled
        admin vlog/enable-rate-limit any; admin vlog/enable-rate-limit bogus
        admin vlog/disable-rate-limit; admin vlog/list | grep -c disabled | sed 's/[0-9]*/N/'
        admin vlog/reopen; admin vlog/reopen x
        mv ovsdb-server.log old; admin vlog/reopen
        admin vlog/close; admin vlog/close; admin vlog/close x; admin vlog/reopen
        admin vlog/message; admin help; admin ''; admin list-commands x; admin version x
        admin coverage/read-counter; admin coverage/read-counter x; admin coverage/show x
        admin memory/show x; admin exit x
        admin vlog/set unixctl:file:dbg jsonrpc:file:dbg
        admin ovsdb-server/list-dbs; admin vlog/set any x y; admin version y
        stop; log; cat old
        ",
    );
}

#[test]
fn admin_commands_with_too_few_and_too_many_arguments() {
    alike(
        "
        create; start d.db --remote=punix:s
        commands=$(ovs-appctl -t ovsdb-server list-commands | awk '/ovsdb-server\\//{print $1}' |
            grep -v -e reload -e relay -e set-sync -e set-active-ovsdb-server-probe)
        for command in $commands; do
            echo \"$command\"; for arguments in '' a 'a b' 'a b c'; do
                admin $command $arguments | grep -v '^performance'
            done
        done
        stop; grep -v -e compacted -e 'reconnect|' ovsdb-server.log
        ",
    );
}

#[test]
fn admin_commands_about_databases() {
    alike(
        "
        create; for n in E _R zz; do sed \"s/\\\"D\\\"/\\\"$n\\\"/\" $SCHEMA > $n.s; ovsdb-tool create $n.db $n.s; done
        start d.db --remote=punix:s
        for db in E.db $PWD/E.db no.db _R.db zz.db zz.db; do admin ovsdb-server/add-db $db; done
        cp zz.db z2.db; admin ovsdb-server/add-db z2.db; admin ovsdb-server/add-db ''
        for db in D D _Server ''; do admin ovsdb-server/remove-db \"$db\"; done
        admin ovsdb-server/list-dbs
        for db in E _Server nope; do
            admin ovsdb-server/compact $db; admin ovsdb-server/get-db-storage-status $db
        done
        for x in on off x; do admin ovsdb-server/memory-trim-on-compaction $x; done
        for x in 'E:T on' 'E:T bla' 'E:nope on' 'nope:T on' 'E on' 'E: on' ':T on' 'E:T:x on' \\
            '_Server:Database on'; do admin ovsdb-server/tlog-set $x; done
        admin ovsdb-server/tlog-list; admin ovsdb-server/tlog-set E:T off
        admin ovsdb-server/reconnect; admin ovsdb-server/perf-counters-clear
        # Asked to exit, 3.1.0 would end in an assertion now.
        kill -9 $(cat ovsdb-server.pid); grep -v compacted ovsdb-server.log
        ",
    );
}

#[test]
fn admin_commands_about_remotes() {
    alike(
        "
        create; start d.db --remote=punix:s
        for remote in punix:s2 punix:s2 punix:$PWD/s3 db:D,M,target db:D,T,ss db:D,T,m db:D,T,s \\
            db:D,T,nope db:D,nope,m db:nope,T,m db:D,T db:D db: db:D,T,m,x db:,,; do
            admin ovsdb-server/add-remote $remote
        done
        admin ovsdb-server/list-remotes; ls
        for remote in punix:s2 punix:s2 db:D,T,m nope; do
            admin ovsdb-server/remove-remote $remote
        done
        admin ovsdb-server/list-remotes; ls; stop; log
        ",
    );
}

#[test]
fn forms_of_remotes() {
    alike(
        "
        for remote in foo foo:bar tcp:127.0.0.1:1 'tcp:[::1]:1' unix:nosock; do
            : > attempts.log
            run --remote=$remote -vconsole:off --log-file=$PWD/attempts.log \\
                --run='until grep -q attempt.failed attempts.log; do sleep .02; done'
            grep reconnect attempts.log | head -2
        done
        run --remote=punix:a --remote=punix:a --run=ls
        long=$(printf 'a%.0s' $(seq 60)); mkdir -p $long/$long
        run --remote=punix:$PWD/$long/$long/s --run=\"ovsdb-client list-dbs unix:$PWD/$long/$long/s\"
        ls $long/$long
        create; start d.db --remote=punix:s
        for remote in 'ptcp:0:[::1]' 'ptcp:0:[::]' ptcp:0 ptcp:0:127.0.0.1 'ptcp:0:[::1%lo]'; do
            admin ovsdb-server/add-remote \"$remote\"; n=$((n + 1))
            wait_for '[ $(grep -c listening.on.port ovsdb-server.log) = $n ]'
            grep -o 'socket_util|INFO|.*listening on port ' ovsdb-server.log | tail -1
            port=$(sed -n 's/.*0.*: listening on port //p' ovsdb-server.log | tail -1)
            for address in '[::1]' 127.0.0.1; do
                ovsdb-client -t 20 list-dbs tcp:$address:$port >/dev/null 2>&1; echo \"$address $?\"
            done
        done
        stop
        ",
    );
}

#[test]
fn remotes_in_a_database() {
    alike(
        r#"
        create; start d.db --remote=punix:s --remote=db:D,T,m --remote=db:D,T,ss
        update() { transact "[\"D\",{\"op\":\"update\",\"table\":\"M\",\"where\":[],\"row\":{$1}}]"; }
        transact '["D",{"op":"insert","table":"T","row":{"m":["named-uuid","a"],"ss":["set",["punix:x1"]]}},{"op":"insert","table":"M","uuid-name":"a","row":{"target":"punix:m1"}}]' >/dev/null
        wait_for 'test -e m1 -a -e x1'
        (ovsdb-client monitor unix:$PWD/m1 D T s >monitored 2>/dev/null; echo "closed" >> closed) &
        wait_for 'test -s monitored'
        update '"inactivity_probe":20000'; sleep .2; update '"max_backoff":3000'; sleep .2; ls closed
        update '"other_config":["map",[["dscp","10"]]]'; wait_for 'test -s closed'; cat closed
        update '"target":"punix:m2"'; wait_for 'test -e m2'; wait_for '! test -e m1'
        update '"target":""'; wait_for '! test -e m2'
        transact '["D",{"op":"delete","table":"T","where":[]}]'; wait_for '! test -e x1'
        admin ovsdb-server/remove-db D; sleep .1
        ls; stop; grep -v database ovsdb-server.log
        "#,
    );
}

#[test]
fn messages_that_are_no_messages() {
    alike(
        r#"
        create; start d.db --remote=punix:s; admin vlog/disable-rate-limit
        cat > ask.py <<'END'
import socket, sys
for line in sys.stdin.read().splitlines():
    peer = socket.socket(socket.AF_UNIX); peer.connect("s"); peer.settimeout(20)
    # The echo behind it tells that the first one was survived.
    try:
        said = b""
        peer.send(line.encode("latin1") + b'{"id":"end","method":"echo","params":[]}')
        while b'"end"' not in said:
            more = peer.recv(65536)
            if not more: break
            said += more
    except ConnectionError: said += b"closed"
    said = said.decode("latin1")
    print(line, "->", said if "details" not in said else "an error with details")
END
        python3 ask.py <<'END'
{}
[]
[1]
{"id":1}
{"method":"echo"}
{"method":"echo","params":[]}
{"method":"echo","params":[],"id":null}
{"method":"echo","params":[1,{"a":null}],"id":[1]}
{"method":"echo","params":{},"id":1}
{"method":"echo","params":null,"id":1}
{"method":"echo","id":1}
{"method":1,"params":[],"id":1}
{"method":null,"params":[],"id":1}
{"method":"echo","params":[],"id":1,"foo":2}
{"method":"echo","params":[],"id":1,"result":2}
{"method":"echo","params":[],"id":1,"result":null,"error":null}
{"method":"echo","params":[],"id":1,"error":"x"}
{"result":1,"id":1}
{"result":null,"error":null,"id":1}
{"result":null,"error":"x","id":1}
{"result":1,"error":"x","id":1}
{"result":1,"id":null}
{"error":"x","id":null}
{"id":"echo","result":[],"error":null}
{"method":"nope","params":[],"id":1}
{"method":"nope","params":[]}
{"method":"","params":[],"id":1}
{"method":"cancel","params":[1]}
{"method":"cancel","params":[1],"id":2}
{"method":"update","params":[1,{}]}
{"method":"list_dbs","params":["x"],"id":{"x":[]}}
{"method":"get_schema","params":[],"id":1}
{"method":"transact","params":["D",{"op":"comment","comment":"x"}]}
{"method":"lock","params":["1x"],"id":1}
{"method":"get_server_id","params":null,"id":1}
{"method":"monitor_cancel","params":[],"id":1}
{"method":"echo","params":[],"id":1}{"method":"echo","params":[2],"id":2}
{"method":"echo","params":[],"id":1},
}
{"a"}
{"a":}
{a:1}
{'a':1}
{"method":"echo","params":["\ud800"],"id":1}
{"method":"echo","params":["\u0000"],"id":1}
{"method":"echo","params":["\x"],"id":1}
{"method":"echo","params":[01],"id":1}
{"method":"echo","params":[1.],"id":1}
{"method":"echo","params":[-0,1e5,1.0,0.1,123456789012345678901],"id":1}
{"method":"echo","params":[1e400],"id":1}
{"method":"echo","params":[tru],"id":1}
{"method":"echo","params":["a	b"],"id":1}
{"method":"echo","params":[1,],"id":1}
{"method":"echo","params":[1 2],"id":1}
{"method":"echo","params":[],"id":1,"id":2}
END
        stop; log
        "#,
    );
}

#[test]
fn the_wire_form_of_admin_commands() {
    alike(
        r#"
        start --no-dbs; admin vlog/disable-rate-limit
        cat > ask.py <<'END'
import glob, socket, sys
for line in sys.stdin.read().splitlines():
    peer = socket.socket(socket.AF_UNIX); peer.connect(glob.glob("*.ctl")[0]); peer.settimeout(20)
    try:
        said = b""
        peer.send(line.encode() + b'{"id":"end","method":"end","params":[]}')
        while b'"end"' not in said:
            more = peer.recv(65536)
            if not more: break
            said += more
    except ConnectionError: said += b"closed"
    print(line, "->", said.decode())
END
        python3 ask.py <<'END'
{"method":"version","params":[1],"id":1}
{"method":"version","params":{},"id":1}
{"method":"version","params":[],"id":null}
{"method":"version","params":[]}
{"method":"nope","params":["a"],"id":1}
{"method":"nope","params":[1],"id":1}
{"method":"ovsdb-server/list-remotes","params":[],"id":1}
{"method":"ovsdb-server/add-remote","params":[1],"id":1}
{"method":"ovsdb-server/add-remote","params":["punix:q"],"id":"x"}
{"method":"ovsdb-server/list-remotes","params":[],"id":1}{"method":"ovsdb-server/list-dbs","params":[],"id":2}
{"result":1,"error":null,"id":1}
{"foo":1}
[]
END
        stop; log
        "#,
    );
}

#[test]
fn what_clients_are_told_when_the_server_exits() {
    alike(
        r#"
        create; start d.db --remote=punix:s
        cat > client.py <<'END'
import json, socket, subprocess
peer = socket.socket(socket.AF_UNIX); peer.connect("s"); peer.settimeout(20)
def call(method, *params): peer.send(json.dumps({"method": method, "params": params, "id": method}).encode())
call("set_db_change_aware", True)
call("monitor", "D", "mine", {"T": {"columns": ["s"]}})
call("monitor", "_Server", "theirs", {"Database": {"columns": ["name"], "select": {"initial": False}}})
call("transact", "D", {"op": "insert", "table": "T", "row": {"s": "x"}})
call("transact", "D", {"op": "wait", "table": "T", "where": [], "columns": ["s"], "until": "==", "rows": []})
call("echo")
said = b""
while b'"echo"' not in said: said += peer.recv(65536)
subprocess.run(["ovs-appctl", "-t", "ovsdb-server", "exit"])
said = b""
while True:
    more = peer.recv(65536)
    if not more: break
    said += more
print(said.decode().replace("}{", "}\n{"))
END
        python3 client.py; wait_for '! test -e ovsdb-server.pid'
        "#,
    );
}

/// How many monitors there are by the reference's count, and weak references.
#[test]
fn monitors_and_references_in_memory() {
    alike(
        r#"
        sed 's/"ss":{"type":{"key":"string"/"ss":{"type":{"key":{"type":"uuid","refTable":"T","refType":"weak"}/' $SCHEMA > weak.s
        ovsdb-tool create d.db weak.s
        show() { ovs-appctl -t ovsdb-server memory/show | grep -oE '(monitors|n-weak-refs):[0-9]+'; }
        start --no-dbs; show; stop
        start d.db --remote=punix:s; show
        cat > client.py <<'END'
import json, socket, subprocess
def connect():
    peer = socket.socket(socket.AF_UNIX); peer.connect("s"); peer.settimeout(20)
    return peer
def call(peer, method, *params):
    peer.send(json.dumps({"id": "end", "method": method, "params": params}).encode())
    said = b""
    while b'"id":"end"' not in said:
        more = peer.recv(65536)
        assert more, said
        said += more
    print(method, params, flush=True)
    subprocess.run(["bash", "-c", "ovs-appctl -t ovsdb-server memory/show | grep -oE '(monitors|n-weak-refs):[0-9]+'"])
one, two = connect(), connect()
names = iter(range(100))
def monitor(peer, method="monitor_cond", db="D", table="T", **request):
    request = {"columns": ["i", "s"], **request}
    last = ["00000000-0000-0000-0000-000000000000"] if method == "monitor_cond_since" else []
    call(peer, method, db, next(names), {table: [request]}, *last)
monitor(one)
monitor(one, where=[["i", "==", 1]])
monitor(one, where=[["i", "==", 2]])
monitor(two, where=[["i", "==", 1]])
monitor(two, "monitor")
monitor(two, "monitor_cond_since", where=[["i", "==", 3]])
call(one, "monitor_cond_change", 1, 1, {"T": [{"where": [["i", "==", 7]]}]})
monitor(one, columns=["s", "i"])
monitor(one, columns=["s"])
monitor(one, select={"initial": False})
monitor(two, db="_Server", table="Database", columns=["name"])
monitor(two, db="_Server", table="Database", columns=["name"], where=[["name", "==", "D"]])
for name in range(8): call(one if name in (0, 1, 2, 6, 7) else two, "monitor_cancel", name)
END
        python3 client.py
        transact '["D",{"op":"insert","table":"T","row":{},"uuid-name":"x"},{"op":"insert","table":"T","row":{"ss":["named-uuid","x"]}}]' >/dev/null
        show; transact '["D",{"op":"delete","table":"T","where":[]}]'; show
        stop
        "#,
    );
}
