//! Which waiting transactions a change concerns makes no difference but for the work: whenever those
//! have run that are thought to be concerned, all others run again, too, and nobody says more.

use std::collections::BTreeMap;

use crate::chance::Chance;
use crate::shell::Shell;
use weir_server::event::{Event, SessionId};

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "A":{"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "mac":{"type":{"key":"string","min":0,"max":1}},
        "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "peer":{"type":{"key":{"type":"uuid","refTable":"B","refType":"weak"},"min":0,"max":1}}},
        "indexes":[["name"]],"isRoot":true},
    "B":{"columns":{
        "name":{"type":"string"},
        "n":{"type":"integer"},
        "a":{"type":"integer"}},
        "indexes":[["name","a"]],"isRoot":true},
    "C":{"columns":{"on":{"type":"boolean"}},"isRoot":true},
    "Untouched":{"columns":{"on":{"type":"boolean"}},"isRoot":true}}}"#;

const STEPS: usize = 120;

/// Transactions that wait, and others.
struct Speaker(Chance);

impl Speaker {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len())]
    }

    fn name(&mut self) -> String {
        format!("\"p{}\"", self.0.below(4))
    }

    fn uuid(&mut self) -> String {
        format!("00000000-0000-0000-0000-00000000000{}", self.0.below(6))
    }

    fn value(&mut self, column: &str) -> String {
        match column {
            "name" => self.name(),
            "n" | "a" => self.0.below(3).to_string(),
            "on" => self.pick(&["true", "false"]).to_owned(),
            "mac" => self.pick(&[r#"["set",[]]"#, "\"m\"", "\"q\""]).to_owned(),
            "tags" => self.pick(&[r#"["set",[]]"#, "\"t\"", r#"["set",["t","u"]]"#]).to_owned(),
            "_uuid" => format!(r#"["uuid","{}"]"#, self.uuid()),
            _ => match self.0.below(3) {
                0 => r#"["set",[]]"#.to_owned(),
                _ => format!(r#"["uuid","{}"]"#, self.uuid()),
            },
        }
    }

    fn column(&mut self, table: &str) -> &'static str {
        match table {
            "A" => self.pick(&["name", "n", "mac", "tags", "peer"]),
            "B" => self.pick(&["name", "n", "a"]),
            _ => "on",
        }
    }

    fn clause(&mut self, table: &str) -> String {
        let column = if self.0.one_in(4) { "_uuid" } else { self.column(table) };
        let function = match column {
            "n" | "a" => self.pick(&["==", "==", "!=", "<", "includes"]),
            _ => self.pick(&["==", "==", "==", "!=", "includes", "excludes"]),
        };
        format!(r#"["{column}","{function}",{}]"#, self.value(column))
    }

    fn condition(&mut self, table: &str) -> String {
        if self.0.one_in(20) {
            return self.pick(&["[true]", "[false]"]).to_owned();
        }
        let clauses: Vec<String> = (0..self.0.below(3)).map(|_| self.clause(table)).collect();
        format!("[{}]", clauses.join(","))
    }

    fn row(&mut self, table: &str) -> String {
        let mut values = BTreeMap::new();
        for _ in 0..=self.0.below(2) {
            let column = self.column(table);
            values.insert(column, self.value(column));
        }
        if matches!(table, "A" | "B") && self.0.one_in(2) {
            values.insert("name", self.name());
        }
        let values: Vec<String> =
            values.iter().map(|(column, value)| format!(r#""{column}":{value}"#)).collect();
        format!("{{{}}}", values.join(","))
    }

    fn table(&mut self) -> &'static str {
        self.pick(&["A", "A", "A", "B", "B", "C"])
    }

    fn wait(&mut self) -> String {
        let table = self.table();
        let condition = self.condition(table);
        let column = self.column(table);
        let columns = match self.0.below(4) {
            0 => String::new(),
            _ => format!(r#""columns":["{column}"],"#),
        };
        let rows = match self.0.below(3) {
            0 => String::new(),
            _ => format!(r#"{{"{column}":{}}}"#, self.value(column)),
        };
        let until = self.pick(&["==", "!="]);
        let timeout = match self.0.below(3) {
            0 => String::new(),
            _ => format!(r#""timeout":{},"#, self.0.below(60)),
        };
        let rest = format!(r#"{columns}{timeout}"until":"{until}","rows":[{rows}]"#);
        format!(r#"{{"op":"wait","table":"{table}","where":{condition},{rest}}}"#)
    }

    /// An operation other than `wait`.
    fn operation(&mut self) -> String {
        let table = self.table();
        let condition = self.condition(table);
        match self.0.below(12) {
            0..5 => {
                let row = self.row(table);
                let uuid = match self.0.below(3) {
                    0 => format!(r#""uuid":"{}","#, self.uuid()),
                    _ => String::new(),
                };
                format!(r#"{{"op":"insert","table":"{table}",{uuid}"row":{row}}}"#)
            }
            5..8 => {
                let row = self.row(table);
                format!(r#"{{"op":"update","table":"{table}","where":{condition},"row":{row}}}"#)
            }
            8 => {
                let n = if table == "C" { r#"["on","insert",true]"# } else { r#"["n","+=",1]"# };
                format!(
                    r#"{{"op":"mutate","table":"{table}","where":{condition},"mutations":[{n}]}}"#
                )
            }
            9 => format!(r#"{{"op":"delete","table":"{table}","where":{condition}}}"#),
            10 => format!(r#"{{"op":"select","table":"{table}","where":{condition}}}"#),
            _ => format!(r#"{{"op":"assert","lock":"{}"}}"#, self.pick(&["k", "l"])),
        }
    }

    fn operations(&mut self, waits: bool) -> String {
        let mut operations = Vec::new();
        for _ in 0..self.0.below(3) {
            operations.push(self.operation());
        }
        if waits {
            operations.push(self.wait());
            if self.0.one_in(3) {
                operations.push(self.wait());
            }
            operations.push(self.operation());
        } else {
            operations.push(self.operation());
        }
        operations.join(",")
    }
}

/// A server and its clients.
struct World {
    shell: Shell,
    sessions: Vec<SessionId>,
}

impl World {
    fn start(seed: u64) -> Self {
        let mut file = Vec::new();
        let schema = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        weir_log::standalone::write_schema(&mut file, &schema);
        let mut shell = Shell::start_on(file);
        let sessions: Vec<SessionId> = (0..4).map(|_| shell.connect()).collect();
        for session in &sessions {
            shell.call(*session, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
        }
        if seed.is_multiple_of(2) {
            shell.server.set_step_cost_max(u64::MAX);
        }
        Self { shell, sessions }
    }

    /// What each client has been told since last asked.
    fn said(&mut self) -> Vec<Vec<String>> {
        let Self { shell, sessions } = self;
        sessions.iter().map(|session| shell.received(*session)).collect()
    }

    /// Lets all that wait run again: something has changed, and was taken back, for it could not be
    /// written. What those say first whom any change concerns is left out.
    fn wake_all(&mut self) {
        let touch = r#"{"op":"insert","table":"Untouched","row":{"on":true}}"#;
        let nobody = self.shell.connect();
        assert!(self.shell.call(nobody, &crate::shell::transact(1, touch)).contains("uuid"));
        drop(self.said());
        self.shell.disk_error = Some("No space left on device");
        let reply = self.shell.call(nobody, &crate::shell::transact(1, touch));
        assert!(reply.contains("No space left"), "{reply}");
        self.shell.disk_error = None;
        self.shell.event(Event::Closed { session: nobody, error: None });
        self.shell.settle();
    }
}

#[derive(Default)]
struct Count {
    waits: usize,
    answered: usize,
    timed_out: usize,
    /// How many have run again because of what they wait for, and how many because all have.
    runs: [u64; 2],
}

fn run(seed: u64, count: &mut Count) {
    let mut world = World::start(seed);
    let mut speaker = Speaker(Chance::new(seed));
    for at in 0..STEPS {
        let waits = speaker.0.one_in(2);
        // All that wait belong to two sessions: what one of them hears has an order.
        let session = speaker.0.below(2) + if waits { 0 } else { 2 };
        let (ms, fails) = (speaker.0.below(20) as u64, speaker.0.one_in(15));
        let message = match speaker.0.below(20) {
            0 => r#"{"id":0,"method":"steal","params":["l"]}"#.to_owned(),
            1 => r#"{"id":0,"method":"unlock","params":["l"]}"#.to_owned(),
            2 => {
                let id = speaker.0.below(at + 1);
                format!(r#"{{"id":null,"method":"cancel","params":[{id}]}}"#)
            }
            _ => crate::shell::transact(at as u32 + 1, &speaker.operations(waits)),
        };
        let shell = &mut world.shell;
        let ran = shell.server.ran_again();
        shell.disk_error = fails.then_some("No space left on device");
        shell.send(world.sessions[session], &message);
        shell.settle();
        shell.disk_error = None;
        shell.pass_ms(ms);
        let said = world.said();
        let concerned = world.shell.server.ran_again();
        world.wake_all();
        let more = world.said().concat();
        assert!(more.is_empty(), "seed {seed}, step {at}: {message}: {more:?}");
        count.runs[0] += concerned - ran;
        count.runs[1] += world.shell.server.ran_again() - concerned;
        count.waits += usize::from(waits);
        let replies = said[..2].iter().flatten();
        count.answered += replies.clone().filter(|reply| reply.contains("\"result\":[{")).count();
        count.timed_out += replies.filter(|reply| reply.contains("\"timed out")).count();
    }
}

#[test]
fn only_the_work_tells_whether_all_are_woken_or_those_concerned() {
    let mut count = Count::default();
    for seed in 0..100 {
        run(seed, &mut count);
    }
    let Count { waits, answered, timed_out, runs: [runs, others] } = count;
    assert!(answered > waits / 5, "{answered} of {waits}");
    assert!(timed_out > waits / 20, "{timed_out} of {waits}");
    assert!(others > runs && runs > 500, "{runs} against {others}");
}

/// In slices, between which others change the same tables: in the end nobody waits for what is
/// there.
#[test]
fn nobody_is_forgotten_between_two_slices() {
    let mut ran = 0;
    for seed in 1000..1040 {
        let mut world = World::start(1);
        let mut speaker = Speaker(Chance::new(seed));
        for at in 0..STEPS {
            let waits = !speaker.0.one_in(3);
            let shell = &mut world.shell;
            shell.server.set_step_cost_max(speaker.0.below(1000) as u64);
            shell.slow_work = speaker.0.one_in(3);
            shell.send(
                world.sessions[speaker.0.below(4)],
                &crate::shell::transact(at as u32, &speaker.operations(waits)),
            );
            if speaker.0.one_in(3) {
                shell.short_round();
            }
            if !shell.work.is_empty() {
                let which = speaker.0.below(shell.work.len());
                shell.do_work(which);
            }
        }
        let shell = &mut world.shell;
        shell.slow_work = false;
        while !shell.work.is_empty() {
            shell.do_work(0);
            shell.settle();
        }
        shell.pass_ms(100);
        shell.server.set_step_cost_max(u64::MAX);
        drop(world.said());
        ran += world.shell.server.ran_again();
        world.wake_all();
        let late = world.said().concat();
        assert!(late.is_empty(), "seed {seed}: {late:?}");
    }
    assert!(ran > 500, "{ran}");
}
