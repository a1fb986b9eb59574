//! What clients say: every method, with parameters that are right and wrong.

use std::collections::BTreeMap;

use crate::chance::Chance;
use crate::client::{Client, Kind, View};
use crate::replica::Rows;
use crate::schemas;

/// A message, and what is expected of it.
pub(crate) struct Message {
    pub(crate) text: String,
    /// The id, if it is a request.
    pub(crate) id: Option<String>,
    pub(crate) kind: Kind,
    /// The database with whose other requests it keeps its order, `-` for those of none.
    pub(crate) lane: Option<String>,
    pub(crate) waits: bool,
    pub(crate) waits_forever: bool,
    /// The request that it takes back.
    pub(crate) cancels: Option<String>,
    pub(crate) sets_aware: Option<bool>,
}

const NAMES: [&str; 7] = ["Net", "Net", "Two", "Two", "Three", "_Server", "Nowhere"];
const CLAUSES: [&str; 8] = [
    r#"["name","==","p3"]"#,
    r#"["n","<",3]"#,
    r#"["n",">=",3]"#,
    r#"["tags","includes","t1"]"#,
    r#"["name","!=","p1"]"#,
    r#"["up","==",true]"#,
    "true",
    "false",
];
const LOCKS: [&str; 3] = ["a", "b", "c"];
/// From this length on a message is checked by a helper.
const BIG: usize = 1 << 20;

/// Between a database and the channel in which it is asked, in what keeps its order.
pub(crate) const CHANNEL: char = '#';

/// Makes messages.
pub(crate) struct Speaker<'r> {
    pub(crate) chance: &'r mut Chance,
    pub(crate) next_id: &'r mut u64,
    /// Ports are at most so many, and their texts so long.
    pub(crate) ports_max: usize,
    pub(crate) text_len: usize,
    pub(crate) may_be_big: bool,
}

/// Whether the operations of a transaction wait, and whether for good.
#[derive(Default)]
struct Waits {
    at_all: bool,
    forever: bool,
}

impl Speaker<'_> {
    /// The next message of a client.
    pub(crate) fn message(&mut self, client: &Client) -> Message {
        let id = self.id();
        match self.chance.below(100) {
            0..58 => {
                let last = client.asked.iter().rfind(|asked| matches!(asked.kind, Kind::Transact));
                let last = last.filter(|_| self.chance.one_in(25));
                self.transact(last.map_or(id, |last| last.id.clone()), &client.state)
            }
            58..66 => self.monitor(id, &client.state),
            66..68 => self.each(id),
            68..73 => self.change(client, id),
            73..76 => self.cancel_monitor(client, id),
            76..82 => self.cancel(client),
            82..85 => self.convert(id),
            85 => match self.chance.below(4) {
                0 => self.echo(id),
                1 => self.log(id),
                _ => self.extension(id, &client.state),
            },
            86 => self.delivery(id),
            87..90 => {
                let name = *self.chance.pick(&NAMES);
                let params = format!(r#"["{name}"]"#);
                Message::request(id, "get_schema", &params).of_lane(name)
            }
            90..95 => {
                let method = *self.chance.pick(&["lock", "lock", "steal", "unlock"]);
                let lock = *self.chance.pick(&LOCKS);
                let params = if self.chance.one_in(20) { "[7]" } else { &format!(r#"["{lock}"]"#) };
                Message::request(id, method, params).of_lane("-")
            }
            95..97 => {
                let is_aware = !self.chance.one_in(4);
                let params = format!("[{is_aware}]");
                let message = Message::request(id, "set_db_change_aware", &params).of_lane("-");
                Message { sets_aware: Some(is_aware), ..message }
            }
            97..99 => {
                let methods = ["list_dbs", "get_server_id", "nonsense", "cancel"];
                let method = *self.chance.pick(&methods);
                Message::request(id, method, "[]").of_lane("-")
            }
            _ if self.chance.one_in(3) => self.misfit(),
            _ => self.echo(id),
        }
    }

    fn id(&mut self) -> String {
        *self.next_id += 1;
        if self.chance.one_in(10) {
            return format!("\"r{}\"", self.next_id);
        }
        self.next_id.to_string()
    }

    fn echo(&mut self, id: String) -> Message {
        if self.may_be_big && self.chance.one_in(30) {
            let filler = "x".repeat(BIG);
            // Helpers look at it: others may be answered before.
            return Message::request(id, "echo", &format!(r#"["{filler}"]"#));
        }
        Message::request(id, "echo", r#"["hello"]"#).of_lane("-")
    }

    fn cancel(&mut self, client: &Client) -> Message {
        let asked = client.asked.iter().filter(|asked| matches!(asked.kind, Kind::Transact));
        let ids: Vec<&String> = asked.map(|asked| &asked.id).collect();
        let id = if ids.is_empty() { "0" } else { *self.chance.pick(&ids) };
        let text = format!(r#"{{"id":null,"method":"cancel","params":[{id}]}}"#);
        Message { cancels: Some(id.to_owned()), ..Message::notification(text) }
    }

    fn convert(&mut self, id: String) -> Message {
        let name = *self.chance.pick(&NAMES);
        let variant = self.chance.below(schemas::VARIANTS.len());
        let schema = match self.chance.below(8) {
            0 => schemas::unfit(name),
            1 => schemas::schema("Other", 0, self.ports_max),
            2 => r#"{"name":7}"#.to_owned(),
            _ => schemas::schema(name, variant, self.ports_max),
        };
        let message = Message::request(id, "convert", &format!(r#"["{name}",{schema}]"#));
        Message { kind: Kind::Convert, ..message.of_lane(name) }
    }

    /// A wait for a delivery, which ends in seconds.
    fn delivery(&mut self, id: String) -> Message {
        let name = *self.chance.pick(&NAMES);
        let level = *self.chance.pick(&["queued", "written", "acknowledged"]);
        let timeout = *self.chance.pick(&[0, 30, 300, 3000]);
        let count = *self.chance.pick(&["", "", r#","count":2"#]);
        let params =
            format!(r#"["{name}","now",{{"level":"{level}","timeout":{timeout}{count}}}]"#);
        let message = Message::request(id, "weir_wait_delivered", &params).of_lane(name);
        Message { kind: Kind::Delivery, waits: true, ..message }
    }

    /// A monitor that is told each change by itself.
    fn each(&mut self, id: String) -> Message {
        let (name, db) = (format!("\"e{}\"", self.chance.below(3)), *self.chance.pick(&NAMES));
        let all = ["name", "n", "tags", "peer", "items"];
        let columns: Vec<&str> = all.into_iter().filter(|_| !self.chance.one_in(3)).collect();
        let index = *self.chance.pick(&["", r#","index":true"#, r#","low_water":true"#]);
        let params = format!(
            r#"["{db}",{name},{{"Port":{{"columns":{columns:?}}}}},"00000000-0000-0000-0000-000000000000",{{"each":true{index}}}]"#
        );
        let view = View {
            db: db.to_owned(),
            has_conditions: false,
            columns: [("Port".to_owned(), columns.into_iter().map(str::to_owned).collect())].into(),
            wheres: BTreeMap::new(),
            is_whole: true,
            rows: Rows::new(),
        };
        let message = Message::request(id, "weir_monitor", &params).of_lane(db);
        Message { kind: Kind::Monitor { name, view: Box::new(view) }, ..message }
    }

    /// What the reference does not know.
    fn extension(&mut self, id: String, state: &str) -> Message {
        let name = *self.chance.pick(&NAMES);
        let state = *self.chance.pick(&[state, "12345678-1234-4234-8234-123456789abc"]);
        let ms = *self.chance.pick(&[0, 40, 2000]);
        let (method, params, waits) = match self.chance.below(6) {
            0 => ("weir_features", "[]".to_owned(), true),
            1 => ("weir_path", format!(r#"["{name}"]"#), true),
            2 => ("weir_sync", format!(r#"["{name}",{ms}]"#), true),
            3 => ("weir_wait_id", format!(r#"["{name}","{state}",{ms}]"#), true),
            4 => {
                let chosen = format!("{:08x}-0000-4000-8000-000000000000", self.chance.below(50));
                ("weir_outcome", format!(r#"["{name}","{chosen}","{state}"]"#), false)
            }
            _ => {
                let select =
                    format!(r#"{{"op":"select","table":"Port","where":{}}}"#, self.filter());
                ("weir_explain", format!(r#"["{name}",{select}]"#), false)
            }
        };
        let message = Message::request(id, method, &params);
        // These are about no database, whatever they name.
        let is_of_none = matches!(method, "weir_features" | "weir_path");
        Message { waits, ..if is_of_none { message } else { message.of_lane(name) } }
    }

    /// What has changed, and who asked for it.
    fn log(&mut self, id: String) -> Message {
        let name = *self.chance.pick(&NAMES);
        let options = *self.chance.pick(&[
            "{}",
            r#"{"limit":3}"#,
            r#"{"since":"00000000-0000-0000-0000-000000000000","limit":1000}"#,
            r#"{"row":"12345678-1234-4234-8234-123456789abc"}"#,
            r#"{"since":"12345678-1234-4234-8234-123456789abc"}"#,
        ]);
        let params = format!(r#"["{name}",{options}]"#);
        let message = Message::request(id, "weir_log", &params).of_lane(name);
        Message { kind: Kind::Log, waits: true, ..message }
    }

    /// No request at all; the server ends most of these sessions.
    fn misfit(&mut self) -> Message {
        let text = match self.chance.below(5) {
            0 => r#"{"id":7,"result":[],"error":null}"#,
            1 => r#"{"method":"echo"}"#,
            2 => r#"{"id":null,"method":"nothing","params":[]}"#,
            3 => r#"{"id":"echo","result":[],"error":null}"#,
            _ => r#"{"id":1,"result":null,"error":"x"}"#,
        };
        Message::notification(text.to_owned())
    }

    fn transact(&mut self, id: String, state: &str) -> Message {
        if self.chance.one_in(40) {
            let params = *self.chance.pick(&["[]", "[7]", r#"["Net",7]"#, r#"["Nowhere"]"#]);
            let message = Message::request(id, "transact", params);
            return Message { kind: Kind::Transact, ..message };
        }
        let name = *self.chance.pick(&NAMES);
        let mut waits = Waits::default();
        let count = 1 + self.chance.below(3);
        let mut operations: Vec<String> = (0..count).map(|_| self.operation(&mut waits)).collect();
        if self.text_len > 1000 && self.chance.one_in(4) {
            // A reply that comes in pieces.
            waits = Waits::default();
            operations = vec![r#"{"op":"select","table":"Port","where":[]}"#.to_owned()];
        }
        let mut params = format!(r#"["{name}",{}"#, operations.join(","));
        if self.may_be_big && self.chance.one_in(150) {
            params.extend(std::iter::repeat_n(' ', BIG));
        }
        params.push(']');
        let method = if self.chance.one_in(8) { "weir_transact" } else { "transact" };
        let mut lane = name.to_owned();
        if method == "weir_transact" {
            let chosen = self.chance.below(50);
            let options = match self.chance.below(4) {
                3 => {
                    let channel = self.chance.below(3);
                    lane.push_str(&format!("{CHANNEL}{channel}"));
                    format!(r#"{{"channel":{channel}}}"#)
                }
                0 => format!(
                    r#"{{"id":"{chosen:08x}-0000-4000-8000-000000000000","since":"{state}"}}"#
                ),
                1 => r#"{"locks":{"a":1}}"#.to_owned(),
                _ => "{}".to_owned(),
            };
            params = params.replacen(',', &format!(",{options},"), 1);
        }
        let message = Message::request(id, method, &params).of_lane(&lane);
        let (waits, waits_forever) = (waits.at_all, waits.forever);
        Message { kind: Kind::Transact, waits, waits_forever, ..message }
    }

    fn port(&mut self) -> String {
        format!("p{}", self.chance.below(self.ports_max + 2))
    }

    fn filter(&mut self) -> String {
        match self.chance.below(6) {
            0 => "[]".to_owned(),
            1 => r#"[["n","<",3]]"#.to_owned(),
            2 => r#"[["tags","includes","t1"]]"#.to_owned(),
            _ => format!(r#"[["name","==","{}"]]"#, self.port()),
        }
    }

    fn row(&mut self) -> String {
        let (n, tag) = (self.chance.below(6), self.chance.below(4));
        let up = self.chance.one_in(2);
        match self.chance.below(4) {
            0 => format!(r#"{{"n":{n}}}"#),
            1 => format!(r#"{{"tags":["set",["t{tag}","t9"]],"n":{n}}}"#),
            2 => format!(r#"{{"up":{up}}}"#),
            _ => format!(r#"{{"tags":"t{tag}","up":{up}}}"#),
        }
    }

    fn insert(&mut self) -> String {
        let (name, n, tag) = (self.port(), self.chance.below(6), self.chance.below(4));
        if self.chance.one_in(3) {
            let text = "y".repeat(self.text_len);
            return format!(
                r#"{{"op":"insert","table":"Item","uuid-name":"i","row":{{"x":{n},"text":"{text}"}}}},
                {{"op":"insert","table":"Port","row":{{"name":"{name}","items":["named-uuid","i"]}}}}"#
            );
        }
        let filler = "z".repeat(self.text_len);
        format!(
            r#"{{"op":"insert","table":"Port","uuid-name":"new","row":{{"name":"{name}","n":{n},"tags":["set",["t{tag}","{filler}"]],"peer":["named-uuid","new"]}}}}"#
        )
    }

    fn wait(&mut self, waits: &mut Waits) -> String {
        let timeout = match self.chance.below(6) {
            0 => "",
            1 => r#""timeout":0,"#,
            2 => r#""timeout":3000,"#,
            _ => r#""timeout":40,"#,
        };
        waits.at_all = true;
        waits.forever |= timeout.is_empty();
        let until = *self.chance.pick(&["==", "!="]);
        let (filter, n) = (self.filter(), self.chance.below(6));
        format!(
            r#"{{"op":"wait",{timeout}"table":"Port","where":{filter},"columns":["n"],"until":"{until}","rows":[{{"n":{n}}}]}}"#
        )
    }

    fn operation(&mut self, waits: &mut Waits) -> String {
        let filter = self.filter();
        match self.chance.below(32) {
            0..9 => self.insert(),
            9..13 => {
                let row = self.row();
                format!(r#"{{"op":"update","table":"Port","where":{filter},"row":{row}}}"#)
            }
            13..18 => {
                let tag = self.chance.below(5);
                let mutation = match self.chance.below(4) {
                    0 => format!(r#"["tags","insert","t{tag}"]"#),
                    1 => format!(r#"["tags","delete","t{tag}"]"#),
                    2 => r#"["n","%=",6],["n","+=",1]"#.to_owned(),
                    _ => r#"["items","delete",["set",[]]]"#.to_owned(),
                };
                format!(
                    r#"{{"op":"mutate","table":"Port","where":{filter},"mutations":[{mutation}]}}"#
                )
            }
            18..20 => format!(r#"{{"op":"delete","table":"Port","where":{filter}}}"#),
            20..24 => format!(r#"{{"op":"select","table":"Port","where":{filter}}}"#),
            24 => r#"{"op":"select","table":"Database","where":[]}"#.to_owned(),
            25..27 => self.wait(waits),
            27 => format!(r#"{{"op":"assert","lock":"{}"}}"#, self.chance.pick(&LOCKS)),
            28 => self.manager(),
            29 => r#"{"op":"comment","comment":"why"}"#.to_owned(),
            30 => r#"{"op":"commit","durable":true}"#.to_owned(),
            _ => match self.chance.below(6) {
                0 => r#"{"op":"abort"}"#,
                1 => r#"{"op":"nonsense"}"#,
                2 => r#"{"op":"insert","table":"Nothing","row":{}}"#,
                3 => r#"{"op":"mutate","table":"Port","where":[],"mutations":[["n","/=",0]]}"#,
                4 => r#"{"op":"update","table":"Port","where":[["x"]],"row":{}}"#,
                _ => "7",
            }
            .to_owned(),
        }
    }

    fn manager(&mut self) -> String {
        let targets =
            ["ptcp:6640", "tcp:192.0.2.1:6640", "tcp:192.0.2.2:6640", "punix:/two", "bogus"];
        let target = *self.chance.pick(&targets);
        match self.chance.below(3) {
            0 => r#"{"op":"delete","table":"Manager","where":[]}"#.to_owned(),
            1 => format!(
                r#"{{"op":"update","table":"Manager","where":[["target","==","{target}"]],"row":{{"inactivity_probe":1000}}}}"#
            ),
            _ => format!(r#"{{"op":"insert","table":"Manager","row":{{"target":"{target}"}}}}"#),
        }
    }

    fn monitor(&mut self, id: String, state: &str) -> Message {
        let name = format!("\"m{}\"", self.chance.below(5));
        if self.chance.one_in(15) {
            let params = *self.chance.pick(&[
                r#"["Net",1,7]"#,
                r#"["Net",1]"#,
                r#"["Net",1,{"Port":{"columns":["nothing"]}}]"#,
                r#"["Nowhere",1,{}]"#,
            ]);
            let method = *self.chance.pick(&["monitor", "monitor_cond", "monitor_cond_since"]);
            return Message::request(id, method, params);
        }
        let db = *self.chance.pick(&NAMES);
        let version = 1 + self.chance.below(3);
        let mut view = View {
            db: db.to_owned(),
            has_conditions: version > 1,
            columns: BTreeMap::new(),
            wheres: BTreeMap::new(),
            is_whole: true,
            rows: Rows::new(),
        };
        let mut requests = Vec::new();
        if db == "_Server" {
            view.columns.insert("Database".into(), vec!["name".into(), "schema".into()]);
            requests.push(r#""Database":{"columns":["name","schema"]}"#.to_owned());
        } else {
            requests.push(self.ports(&mut view, version));
        }
        if db != "_Server" && self.chance.one_in(2) {
            view.columns.insert("Item".into(), vec!["x".into()]);
            requests.push(r#""Item":[{"columns":["x"]}]"#.to_owned());
        }
        if db != "_Server" && self.chance.one_in(3) {
            let columns = ["target", "is_connected", "status", "inactivity_probe"];
            view.columns.insert("Manager".into(), columns.map(str::to_owned).to_vec());
            requests.push(format!(r#""Manager":{{"columns":{columns:?}}}"#));
        }
        let requests = requests.join(",");
        // None, or one of another database.
        let known = match self.chance.below(8) {
            0 => state,
            1 => "5c0310a7-a17f-475e-8000-000000000000",
            _ => "00000000-0000-0000-0000-000000000000",
        };
        let (method, params) = match version {
            1 => ("monitor", format!(r#"["{db}",{name},{{{requests}}}]"#)),
            2 => ("monitor_cond", format!(r#"["{db}",{name},{{{requests}}}]"#)),
            _ => ("monitor_cond_since", format!(r#"["{db}",{name},{{{requests}}},"{known}"]"#)),
        };
        let message = Message::request(id, method, &params).of_lane(db);
        Message { kind: Kind::Monitor { name, view: Box::new(view) }, ..message }
    }

    /// The request for ports.
    fn ports(&mut self, view: &mut View, version: usize) -> String {
        let all = ["name", "n", "tags", "peer", "items", "up"];
        let columns: Vec<&str> = all.into_iter().filter(|_| !self.chance.one_in(3)).collect();
        let mut request = format!(r#""columns":{columns:?}"#);
        view.columns.insert("Port".into(), columns.into_iter().map(str::to_owned).collect());
        if version > 1 && self.chance.one_in(2) {
            let wheres = self.clauses();
            request += &format!(r#","where":[{}]"#, wheres.join(","));
            view.wheres.insert("Port".into(), wheres);
        }
        if self.chance.one_in(6) {
            request += r#","select":{"initial":false,"delete":false}"#;
            view.is_whole = false;
        }
        format!(r#""Port":{{{request}}}"#)
    }

    fn clauses(&mut self) -> Vec<String> {
        let count = 1 + self.chance.below(2);
        (0..count).map(|_| (*self.chance.pick(&CLAUSES)).to_owned()).collect()
    }

    /// A monitor, and its database, if there is no doubt which it will be.
    fn watched(&mut self, client: &Client) -> Option<(String, String)> {
        let names: Vec<&String> = client.views.keys().collect();
        if names.is_empty() {
            return None;
        }
        let name = (*self.chance.pick(&names)).clone();
        let is_known = client.asked.iter().all(|asked| match &asked.kind {
            Kind::Monitor { name: other, .. } | Kind::CancelMonitor(other) => *other != name,
            Kind::Change { old, new, .. } => *old != name && *new != name,
            Kind::Convert => false,
            Kind::Transact | Kind::Delivery | Kind::Log | Kind::Other => true,
        });
        let db = if is_known { client.views[&name].db.clone() } else { String::new() };
        Some((name, db))
    }

    fn change(&mut self, client: &Client, id: String) -> Message {
        let method = "monitor_cond_change";
        let Some((old, db)) = self.watched(client) else {
            return Message::request(id, method, r#"["no","no",{}]"#);
        };
        let is_busy = client.asked.iter().any(|asked| !matches!(asked.kind, Kind::Transact));
        let new = format!("\"m{}\"", self.chance.below(5));
        let is_free = !is_busy && !client.views.contains_key(&new);
        let new = if is_free && self.chance.one_in(3) { new } else { old.clone() };
        let clauses = self.clauses();
        let text = clauses.join(",");
        let (table, wheres) = match self.chance.below(12) {
            0 => ("Nothing", BTreeMap::new()),
            _ => ("Port", [("Port".to_owned(), clauses)].into()),
        };
        let params = format!(r#"[{old},{new},{{"{table}":[{{"where":[{text}]}}]}}]"#);
        let message = Message::request(id, method, &params).of_lane(&db);
        Message { kind: Kind::Change { old, new, wheres }, ..message }
    }

    fn cancel_monitor(&mut self, client: &Client, id: String) -> Message {
        let Some((name, db)) = self.watched(client) else {
            return Message::request(id, "monitor_cancel", r#"["no"]"#);
        };
        let message = Message::request(id, "monitor_cancel", &format!("[{name}]"));
        Message { kind: Kind::CancelMonitor(name), ..message.of_lane(&db) }
    }
}

impl Message {
    fn request(id: String, method: &str, params: &str) -> Self {
        let text = format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#);
        Self { id: Some(id), ..Self::notification(text) }
    }

    fn notification(text: String) -> Self {
        Self {
            text,
            id: None,
            kind: Kind::Other,
            lane: None,
            waits: false,
            waits_forever: false,
            cancels: None,
            sets_aware: None,
        }
    }

    fn of_lane(self, lane: &str) -> Self {
        Self { lane: (!lane.is_empty()).then(|| lane.to_owned()), ..self }
    }
}
