//! The server beside the reference: who is disconnected when databases come, go and change, what a
//! role may not do, and what a backup says of a source that it cannot follow.

use crate::beside::Beside;
use crate::support::RBAC_TABLES;

/// The script does the same on both sides.
fn alike(script: &str) {
    if let Some(beside) = Beside::new() {
        beside.alike(script);
    }
}

#[test]
fn databases_that_come_and_go_disconnect_who_is_not_aware() {
    alike(
        r#"
        create; sed 's/"D"/"E"/' $SCHEMA > e.schema; ovsdb-tool create e.db e.schema
        sed 's/"D"/"F"/' $SCHEMA > f.schema; ovsdb-tool create f.db f.schema
        start d.db e.db f.db --remote=punix:s
        for db in D E; do
            transact "[\"$db\",{\"op\":\"insert\",\"table\":\"T\",\"row\":{\"s\":\"x\"}}]" >/dev/null
        done
        told() { sed 's/[0-9a-f]\{8\}-[-0-9a-f]*/U/g' "$@" | grep -v 'fatal_signal\|---'; }
        for aware in --no-db-change-aware --db-change-aware; do
            for what in 'remove-db F' "add-db $PWD/f.db" 'remove-db E' reconnect; do
                db=E; [ "$what" = reconnect ] && db=D
                ovsdb-client $aware monitor unix:$PWD/s $db T > m 2>&1 & p=$!
                wait_for 'test -s m'
                admin ovsdb-server/$what
                # Whoever is not cut at once is not cut at all.
                sleep .2; kill $p 2>/dev/null && echo "goes on"
                wait $p; echo "status $?"; told m; rm m
            done
            admin ovsdb-server/add-db $PWD/e.db
        done
        sed 's/"i":{"type":"integer"},//; s/1.0.0/2.0.0/' $SCHEMA > d2.schema
        ovsdb-client --no-db-change-aware monitor unix:$PWD/s D T > m1 2>&1 & p=$!
        ovsdb-client --db-change-aware monitor unix:$PWD/s D T > m2 2>&1 & q=$!
        wait_for 'test -s m1 -a -s m2'
        ovsdb-client convert unix:$PWD/s d2.schema; echo "status $?"
        wait $p; echo "status $?"; wait $q; echo "status $?"; told m1 m2
        ovsdb-client needs-conversion unix:$PWD/s d2.schema
        ovsdb-client get-schema-version unix:$PWD/s D
        stop; log | sed 's/unix#[0-9]*/unix#N/' | grep -v 'converted in'
        ovsdb-tool db-version d.db; wc -l < d.db
        "#,
    );
}

#[test]
fn a_role_without_a_certificate_may_read_only() {
    let script = r#"
        cat > r.schema <<'X'
{"name":"D","version":"1.0.0","tables":{
 "M":{"isRoot":true,"columns":{"target":{"type":"string"},"role":{"type":"string"},
  "read_only":{"type":"boolean"},"is_connected":{"type":"boolean"},
  "status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
 "R":{"isRoot":true,"columns":{
  "m":{"type":{"key":{"type":"uuid","refTable":"M"},"min":0,"max":"unlimited"}}}},
 "T":{"isRoot":true,"columns":{"s":{"type":"string"},"i":{"type":"integer"},
  "m":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
 "U":{"isRoot":true,"columns":{"s":{"type":"string"}}},RBAC_TABLES}}
X
        ovsdb-tool create d.db r.schema; start d.db --remote=punix:s --remote=db:D,R,m
        uuids() { sed 's/[0-9a-f]\{8\}-[-0-9a-f]*/U/g'; }
        transact '["D",
            {"op":"insert","table":"R","row":{
                "m":["set",[["named-uuid","a"],["named-uuid","b"],["named-uuid","c"]]]}},
            {"op":"insert","table":"M","uuid-name":"a","row":{"target":"punix:a","role":"r"}},
            {"op":"insert","table":"M","uuid-name":"b",
                "row":{"target":"punix:b","role":"r","read_only":true}},
            {"op":"insert","table":"M","uuid-name":"c","row":{"target":"punix:c","role":"none"}},
            {"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"table":"T",
                "authorization":"","insert_delete":true,"update":["set",["s","m:k"]]}},
            {"op":"insert","table":"RBAC_Permission","uuid-name":"q","row":{"table":"U",
                "authorization":"s","insert_delete":true,"update":"s"}},
            {"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":
                ["map",[["T",["named-uuid","p"]],["U",["named-uuid","q"]]]]}},
            {"op":"insert","table":"T","row":{"s":"x"}},
            {"op":"insert","table":"U","row":{"s":"x"}}]' | uuids
        wait_for 'test -e a -a -e b -a -e c'
        for k in a b c; do
            at() { echo "$k $1"; ovsdb-client -t 20 transact unix:$PWD/$k "[\"D\",$1]" 2>&1 | uuids; }
            at '{"op":"insert","table":"T","row":{"s":"y"}}'
            at '{"op":"insert","table":"U","row":{"s":"y"}}'
            at '{"op":"insert","table":"M","row":{"role":"y"}}'
            at '{"op":"update","table":"T","where":[],"row":{"s":"z"}}'
            at '{"op":"update","table":"T","where":[["s","==","nope"]],"row":{"i":1}}'
            at '{"op":"update","table":"T","where":[],"row":{}}'
            at '{"op":"update","table":"U","where":[],"row":{"s":"z"}}'
            at '{"op":"mutate","table":"T","where":[],"mutations":[["i","+=",1]]}'
            at '{"op":"mutate","table":"U","where":[],"mutations":[["s","insert","x"]]}'
            at '{"op":"delete","table":"T","where":[]}'
            at '{"op":"delete","table":"M","where":[["target","==","none"]]}'
            at '{"op":"select","table":"U","where":[],"columns":["s"]}'
            at '{"op":"wait","timeout":0,"table":"U","where":[],"columns":["s"],"until":"==","rows":[]}'
            at '{"op":"comment","comment":"c"},{"op":"commit","durable":true}'
            sed 's/1.0.0/2.0.0/' r.schema > r2.schema
            ovsdb-client convert unix:$PWD/$k r2.schema 2>&1; echo "status $?"
            ovsdb-client get-schema-version unix:$PWD/$k
        done
        stop; log
        "#;
    alike(&script.replace("RBAC_TABLES", RBAC_TABLES));
}

/// The older reference names the databases of `sync-status` elsewhere, and none in log lines.
#[test]
fn a_backup_that_cannot_follow_says_why() {
    alike(
        r#"
        trap 'kill -9 $(cat a.pid ovsdb-server.pid) 2>/dev/null' EXIT
        create a.db; create; create all.db
        sed 's/"s":{"type":"string"},/"s":{"type":"integer"},/; s/1.0.0/3.0.0/' $SCHEMA > o.schema
        sed 's/"s":{"type":"string"},//; s/1.0.0/2.0.0/' $SCHEMA > less.schema
        ovsdb-tool create other.db o.schema; ovsdb-tool create less.db less.schema
        ovsdb-server -vconsole:off --detach --no-chdir --pidfile=a.pid --unixctl=a.ctl \
            --remote=punix:a a.db
        backup() {
            start $1 --remote=punix:s --sync-from=unix:$PWD/a $3
            wait_for 'ovs-appctl -t ovsdb-server ovsdb-server/sync-status | grep -q '"'$2'"
            admin ovsdb-server/sync-status | grep -v '^database\|^$'
            ovsdb-client transact unix:$PWD/s '["D",{"op":"insert","table":"T","row":{}}]' |
                sed 's/[0-9a-f]\{8\}-[-0-9a-f]*/U/g'
            stop; log | sed 's/|D: /|/; s/|Monitor re.*/|Monitor/'; rm ovsdb-server.log
        }
        backup other.db active; backup less.db active
        backup d.db replicating; backup all.db replicating --sync-exclude-tables=D:T
        ovs-appctl -t $PWD/a.ctl exit; wait_for '! test -e a.pid'
        "#,
    );
}
