//! Keys beside the unique indexes: who wants them, how they are built and kept, and that nothing but
//! the cost of a request depends on them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::shell::{PATH, Shell, key_path, transact};
use weir_server::Config;

pub(crate) const SCHEMA: &str = r#"{"name":"Net","tables":{"Port":{"columns":{
    "name":{"type":"string"},"kind":{"type":"string"},"tag":{"type":"integer"},
    "peers":{"type":{"key":"string","min":0,"max":"unlimited"}}},
    "indexes":[["name"]]}}}"#;

/// A table of fewer rows has no keys of the server's own choosing.
pub(crate) const MANY: usize = 3_000;

/// Scans after which the server would rather have a key.
pub(crate) const SCANS: usize = 33;

fn ok(text: &str) -> Option<Result<String, String>> {
    Some(Ok(text.to_owned()))
}

fn error(text: &str) -> Option<Result<String, String>> {
    Some(Err(text.to_owned()))
}

pub(crate) fn file_of(schema: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).expect("a schema");
    weir_log::standalone::write_schema(&mut file, &schema);
    file
}

/// A server whose table has so many ports, ten of each kind.
pub(crate) fn server_of(ports: usize) -> Shell {
    let mut shell = Shell::start_on(file_of(SCHEMA));
    add_ports(&mut shell, 0..ports);
    shell
}

pub(crate) fn add_ports(shell: &mut Shell, ports: std::ops::Range<usize>) {
    let client = shell.connect();
    let mut operations = String::new();
    for port in ports {
        let comma = if operations.is_empty() { "" } else { "," };
        let (kind, tag) = (port / 10, port % 100);
        write!(
            operations,
            r#"{comma}{{"op":"insert","table":"Port","row":{{"name":"p{port}","kind":"k{kind}",
               "tag":{tag},"peers":["set",["a{kind}","b{tag}"]]}}}}"#
        )
        .expect("a string takes all");
    }
    let reply = shell.call(client, &transact(1, &operations));
    assert!(!reply.contains("\"details\""), "{reply}");
}

/// The names of the ports that satisfy a condition, as the server finds them.
pub(crate) fn select(shell: &mut Shell, condition: &str) -> String {
    let client = shell.connect();
    let select =
        format!(r#"{{"op":"select","table":"Port","where":[{condition}],"columns":["name"]}}"#);
    shell.call(client, &transact(1, &select))
}

/// The lines of `index/list`, word by word, without the headline and without figures.
pub(crate) fn listed(shell: &mut Shell) -> Vec<String> {
    let Some(Ok(text)) = shell.command("index/list", &[]) else { panic!("it is answered") };
    let lines = text.lines().skip(1);
    let words = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[..words.len() - 3].join(" ")
    };
    lines.map(words).collect()
}

pub(crate) fn logged(shell: &Shell, what: &str) -> usize {
    shell.log.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn an_operator_adds_lists_and_drops_keys() {
    let mut shell = server_of(MANY);
    let before = select(&mut shell, r#"["kind","==","k7"]"#);
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(shell.command("index/add", &["Net", "Port", "tag", "desc"]), ok(""));
    assert_eq!(shell.command("index/add", &["Net", "Port", "peers"]), ok(""));
    shell.pass_ms(1);
    assert_eq!(
        listed(&mut shell),
        [
            "Net Port kind hash declared ready",
            "Net Port peers inverted declared ready",
            "Net Port tag ordered declared, desc ready",
        ]
    );
    assert_eq!(select(&mut shell, r#"["kind","==","k7"]"#), before);
    assert_eq!(
        logged(&shell, "Net: building a hash key on column kind of table Port, as asked"),
        1
    );
    assert_eq!(logged(&shell, "Net: the hash key on column kind of table Port is built"), 1);
    // Another order takes the place of the first one.
    assert_eq!(shell.command("index/add", &["Net", "Port", "tag"]), ok(""));
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), ok(""));
    shell.pass_ms(1);
    assert_eq!(
        listed(&mut shell),
        ["Net Port peers inverted declared ready", "Net Port tag hash declared ready"]
    );
    assert_eq!(
        logged(&shell, "Net: dropped the hash key on column kind of table Port, as asked"),
        1
    );
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), error("no such key"));
    assert_eq!(select(&mut shell, r#"["kind","==","k7"]"#), before);
}

#[test]
fn what_cannot_be_had_is_refused() {
    let mut shell = server_of(1);
    for (args, refused) in [
        (&["Old", "Port", "kind"][..], "no such database"),
        (&["Net", "Old", "kind"], "no such table"),
        (&["Net", "Port", "old"], "no such column"),
        (&["Net", "Port", "_uuid"], "the column cannot have a key"),
        (&["Net", "Port", "kind", "up"], "invalid command argument"),
        (&["Net", "Port", "peers", "asc"], "the column cannot have an ordered key"),
        (&["_Server", "Database", "model"], "cannot add keys to built-in databases"),
    ] {
        assert_eq!(shell.command("index/add", args), error(refused), "{args:?}");
    }
    assert_eq!(shell.command("index/drop", &["Old", "Port", "kind"]), error("no such database"));
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), error("no such key"));
    assert_eq!(shell.command("index/list", &["Old"]), error("no such database"));
    assert_eq!(listed(&mut shell), Vec::<String>::new());
}

#[test]
fn no_more_keys_are_declared_than_there_may_be() {
    let columns = (0..257).map(|n| format!(r#""c{n}":{{"type":"integer"}}"#));
    let columns = columns.collect::<Vec<String>>().join(",");
    let schema = format!(r#"{{"name":"Net","tables":{{"Wide":{{"columns":{{{columns}}}}}}}}}"#);
    let mut shell = Shell::start_on(file_of(&schema));
    for n in 0..256 {
        assert_eq!(shell.command("index/add", &["Net", "Wide", &format!("c{n}")]), ok(""));
    }
    assert_eq!(shell.command("index/add", &["Net", "Wide", "c256"]), error("too many keys"));
}

/// A restart is all that a file and what is beside it have in them.
fn restarted(shell: &Shell) -> Shell {
    let file = shell.files[PATH].clone();
    Shell::start_on_files(file, shell.files.clone(), Config::default())
}

#[test]
fn declared_keys_are_there_again_after_a_restart() {
    let mut shell = server_of(50);
    shell.command("index/add", &["Net", "Port", "kind"]);
    shell.command("index/add", &["Net", "Port", "tag", "asc"]);
    let kept = String::from_utf8(shell.files[&key_path(PATH)].clone()).expect("text");
    let expected = "{\"database\":\"Net\",\"format\":1,\
                    \"keys\":{\"Port\":{\"kind\":\"hash\",\"tag\":\"asc\"}}}\n";
    assert_eq!(kept, expected);
    let mut again = restarted(&shell);
    let expected =
        ["Net Port kind hash declared ready", "Net Port tag ordered declared, asc ready"];
    assert_eq!(listed(&mut again), expected);
    for column in ["kind", "tag"] {
        assert_eq!(again.command("index/drop", &["Net", "Port", column]), ok(""));
    }
    assert!(!again.files.contains_key(&key_path(PATH)), "nothing is left to be kept");
    assert_eq!(listed(&mut restarted(&again)), Vec::<String>::new());
}

#[test]
fn what_cannot_be_kept_is_built_all_the_same_and_said_once() {
    let mut shell = server_of(50);
    shell.keys_are_refused = true;
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut shell), ["Net Port kind hash declared ready"]);
    assert_eq!(logged(&shell, "could not be written beside the file (Read-only file system)"), 1);
    assert_eq!(listed(&mut restarted(&shell)), Vec::<String>::new());
    // It is tried again when somebody asks for the same again.
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(logged(&shell, "could not be written beside the file"), 2);
    shell.keys_are_refused = false;
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    let kept = ["Net Port kind hash declared ready"];
    assert_eq!(listed(&mut restarted(&shell)), kept);
    // And so it is with what is taken back.
    shell.keys_are_refused = true;
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut shell), Vec::<String>::new());
    assert_eq!(listed(&mut restarted(&shell)), kept);
    assert_eq!(shell.command("index/drop", &["Net", "Port", "tag"]), error("no such key"));
    shell.keys_are_refused = false;
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut restarted(&shell)), Vec::<String>::new());
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), error("no such key"));
}

#[test]
fn what_was_written_though_an_error_came_is_taken_back() {
    let mut shell = server_of(50);
    shell.keys_may_not_last = true;
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    shell.keys_may_not_last = false;
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut restarted(&shell)), Vec::<String>::new());
}

#[test]
fn who_asks_for_what_is_being_written_is_answered_when_it_is() {
    let mut shell = server_of(10);
    shell.slow_helper = true;
    let args = &["Net", "Port", "kind"];
    for command in ["index/add", "index/drop"] {
        shell.replies.clear();
        for _ in 0..2 {
            assert_eq!(shell.command(command, args), None);
        }
        // One file is enough for both.
        shell.helper_is_done();
        shell.settle();
        let replies: Vec<_> = shell.replies.values().cloned().collect();
        assert_eq!(replies, [Ok(String::new()), Ok(String::new())], "{command}");
    }
    assert_eq!(shell.command("index/drop", args), error("no such key"));
}

#[test]
fn a_file_of_another_database_or_of_nobody_declares_nothing() {
    let odd = [
        (
            &br#"{"database":"Old","format":1,"keys":{"Port":{"kind":"hash"}}}"#[..],
            "another database",
        ),
        (br#"{"database":"Net","format":2,"keys":{}}"#, "another version"),
        (b"", "malformed"),
    ];
    for (text, problem) in odd {
        let files = BTreeMap::from([(key_path(PATH), text.to_vec())]);
        let mut shell = Shell::start_on_files(file_of(SCHEMA), files, Config::default());
        assert_eq!(logged(&shell, problem), 1, "{:?}", shell.log);
        assert_eq!(listed(&mut shell), Vec::<String>::new());
    }
    // One that names a column that is not there waits for it.
    let text = br#"{"database":"Net","format":1,"keys":{"Port":{"later":"hash","kind":"hash"}}}"#;
    let files = BTreeMap::from([(key_path(PATH), text.to_vec())]);
    let mut shell = Shell::start_on_files(file_of(SCHEMA), files, Config::default());
    let expected = ["Net Port kind hash declared ready", "Net Port later - declared no column"];
    assert_eq!(listed(&mut shell), expected);
}

#[test]
fn the_server_helps_itself_to_a_key_and_gives_it_up_when_it_does_not_pay() {
    let mut shell = server_of(MANY);
    let first = select(&mut shell, r#"["kind","==","k7"]"#);
    for _ in 1..SCANS {
        assert_eq!(select(&mut shell, r#"["kind","==","k7"]"#), first);
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port kind hash server ready"]);
    assert_eq!(logged(&shell, "for want of it"), 1);
    assert_eq!(select(&mut shell, r#"["kind","==","k7"]"#), first);
    assert!(!shell.files.contains_key(&key_path(PATH)), "nobody has declared it");
    // An operator may declare it, or send it away.
    assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut shell), ["Net Port kind hash declared ready"]);
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), ok(""));
    assert_eq!(listed(&mut shell), Vec::<String>::new());
    for _ in 0..SCANS {
        select(&mut shell, r#"["kind","==","k8"]"#);
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port kind hash server ready"]);
    let client = shell.connect();
    let update = r#"{"op":"update","table":"Port","where":[],"row":{"kind":"z"}}"#;
    shell.call(client, &transact(1, update));
    shell.pass_ms(1);
    assert_eq!(logged(&shell, "dropped the hash key on column kind of table Port: it saved"), 1);
    assert_eq!(listed(&mut shell), Vec::<String>::new());
}

#[test]
fn a_key_beyond_what_the_server_gives_to_its_own_is_not_built_unless_declared() {
    let mut shell = server_of(MANY);
    let client = shell.connect();
    // 450,000 elements: such a key would take more than 4 MiB, and there are no millions of atoms.
    let peers: Vec<String> = (0..150).map(|n| format!(r#""b{n}""#)).collect();
    let update = format!(
        r#"{{"op":"update","table":"Port","where":[],"row":{{"peers":["set",[{}]]}}}}"#,
        peers.join(",")
    );
    shell.call(client, &transact(1, &update));
    for _ in 0..3 * SCANS {
        select(&mut shell, r#"["peers","includes","a7"]"#);
        shell.pass_ms(1);
    }
    assert_eq!(listed(&mut shell), Vec::<String>::new());
    assert_eq!(logged(&shell, "building"), 0);
    assert_eq!(shell.command("index/add", &["Net", "Port", "peers"]), ok(""));
    for _ in 0..300 {
        shell.pass_ms(1);
    }
    assert_eq!(listed(&mut shell), ["Net Port peers inverted declared ready"]);
    // What is declared does not count: there is room for others.
    for _ in 0..SCANS {
        select(&mut shell, r#"["kind","==","k7"]"#);
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell)[0], "Net Port kind hash server ready");
}

#[test]
fn a_key_is_built_step_by_step_while_commits_go_on() {
    let mut shell = server_of(3 * MANY);
    shell.server.handle(
        shell.now,
        weir_server::event::Event::Command {
            id: weir_server::event::CommandId(1),
            name: "index/add".to_owned(),
            args: ["Net", "Port", "kind"].map(str::to_owned).to_vec(),
        },
    );
    shell.round();
    let mut rounds = 0;
    while !listed_now(&mut shell).contains("ready") {
        add_ports_at_once(&mut shell, 3 * MANY + rounds);
        rounds += 1;
        assert!(rounds < 50, "it is never built");
    }
    assert!(rounds >= 3, "{rounds} rounds for {} rows", 3 * MANY);
    // Of this kind there were none before.
    let found = select(&mut shell, &format!(r#"["kind","==","k{}"]"#, 3 * MANY / 10));
    assert_eq!(found.matches("\"name\"").count(), rounds.min(10), "{found}");
}

#[test]
fn a_helper_frees_the_rows_that_a_key_was_built_from_if_they_are_many() {
    for (peers, freed) in [(1, 0), (40, 1)] {
        let mut shell = server_of(MANY);
        let client = shell.connect();
        let peers: Vec<String> = (0..peers).map(|n| format!(r#""b{n}""#)).collect();
        let update = format!(
            r#"{{"op":"update","table":"Port","where":[],"row":{{"peers":["set",[{}]]}}}}"#,
            peers.join(",")
        );
        shell.call(client, &transact(1, &update));
        shell.settle();
        shell.sent_out.clear();
        assert_eq!(shell.command("index/add", &["Net", "Port", "kind"]), ok(""));
        shell.pass_ms(1);
        assert_eq!(listed(&mut shell), ["Net Port kind hash declared ready"]);
        assert_eq!(shell.sent_out.iter().filter(|what| *what == "Free").count(), freed);
    }
}

/// `index/list`, without letting anything else go on.
fn listed_now(shell: &mut Shell) -> String {
    let id = weir_server::event::CommandId(2);
    let name = "index/list".to_owned();
    let command = weir_server::event::Event::Command { id, name, args: Vec::new() };
    shell.event(command);
    shell.round();
    shell.replies[&id].clone().expect("it is answered")
}

/// Adds a port in one round.
fn add_ports_at_once(shell: &mut Shell, port: usize) {
    let client = shell.connect();
    let kind = port / 10;
    let insert =
        format!(r#"{{"op":"insert","table":"Port","row":{{"name":"p{port}","kind":"k{kind}"}}}}"#);
    shell.send(client, &transact(1, &insert));
    shell.round();
}

#[test]
fn a_schema_declares_keys_and_a_plain_one_leaves_them_alone() {
    let mut shell = server_of(100);
    let client = shell.connect();
    let with = SCHEMA.replace(
        r#""tag":{"type":"integer"}"#,
        r#""tag":{"type":"integer","alternate_key":true,"order":"asc"}"#,
    );
    let convert =
        |schema: &str| format!(r#"{{"id":9,"method":"convert","params":["Net",{schema}]}}"#);
    let reply = shell.call(client, &convert(&with));
    assert_eq!(reply, r#"{"id":9,"result":{},"error":null}"#);
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port tag ordered declared, asc ready"]);
    // Nobody sees anything of it.
    let client = shell.connect();
    let seen = shell.call(client, r#"{"id":1,"method":"get_schema","params":["Net"]}"#);
    let plain = weir_data::Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema");
    assert_eq!(seen, format!(r#"{{"id":1,"result":{plain},"error":null}}"#));
    let file = String::from_utf8_lossy(&shell.files[PATH]).into_owned();
    assert!(!file.contains("alternate_key"), "{file}");
    // The plain schema drops nothing; only one that says so does.
    let before = select(&mut shell, r#"["tag",">=",98]"#);
    let client = shell.connect();
    shell.call(client, &convert(SCHEMA));
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port tag ordered declared, asc ready"]);
    assert_eq!(select(&mut shell, r#"["tag",">=",98]"#), before);
    let client = shell.connect();
    shell.call(client, &convert(&with.replace("true", "false")));
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), Vec::<String>::new());
    assert!(!shell.files.contains_key(&key_path(PATH)));
}

#[test]
fn who_converts_is_answered_when_what_was_declared_is_in_the_file() {
    let mut shell = server_of(10);
    let client = shell.connect();
    shell.call(client, r#"{"id":1,"method":"set_db_change_aware","params":[true]}"#);
    shell.slow_helper = true;
    let with = SCHEMA.replace(r#""kind":{"#, r#""kind":{"alternate_key":true,"#);
    shell.send(client, &format!(r#"{{"id":9,"method":"convert","params":["Net",{with}]}}"#));
    shell.settle();
    assert!(!shell.files.contains_key(&key_path(PATH)));
    shell.helper_is_done();
    shell.settle();
    // It is converted, and the file is being written.
    assert_eq!(listed(&mut shell), ["Net Port kind hash declared ready"]);
    assert_eq!(shell.received(client), Vec::<String>::new());
    shell.helper_is_done();
    shell.settle();
    assert!(shell.files.contains_key(&key_path(PATH)));
    assert_eq!(shell.received(client), [r#"{"id":9,"result":{},"error":null}"#]);
    // A database that goes lets nobody wait.
    let without = with.replace("true", "false");
    shell.send(client, &format!(r#"{{"id":10,"method":"convert","params":["Net",{without}]}}"#));
    shell.settle();
    shell.helper_is_done();
    shell.settle();
    assert_eq!(shell.received(client), Vec::<String>::new());
    assert_eq!(shell.command("ovsdb-server/remove-db", &["Net"]), ok(""));
    shell.settle();
    assert_eq!(shell.received(client), [r#"{"id":10,"result":{},"error":null}"#]);
}

#[test]
fn a_conversion_that_fails_declares_nothing() {
    let mut shell = server_of(10);
    let client = shell.connect();
    let bad = SCHEMA.replace(
        r#""name":{"type":"string"}"#,
        r#""name":{"type":{"key":"string","enum":["set",["x"]]},"alternate_key":true}"#,
    );
    let convert = format!(r#"{{"id":9,"method":"convert","params":["Net",{bad}]}}"#);
    let reply = shell.call(client, &convert);
    assert!(reply.contains("\"error\":{"), "{reply}");
    assert_eq!(listed(&mut shell), Vec::<String>::new());
    assert!(!shell.files.contains_key(&key_path(PATH)));
}

#[test]
fn a_key_waits_for_its_column_to_come_back() {
    let mut shell = server_of(10);
    shell.command("index/add", &["Net", "Port", "tag", "asc"]);
    let without = SCHEMA.replace(r#""tag":{"type":"integer"},"#, "");
    for (schema, expected) in [
        (without.as_str(), "Net Port tag - declared, asc no column"),
        (SCHEMA, "Net Port tag ordered declared, asc ready"),
    ] {
        let client = shell.connect();
        shell.call(client, &format!(r#"{{"id":9,"method":"convert","params":["Net",{schema}]}}"#));
        shell.pass_ms(1);
        assert_eq!(listed(&mut shell), [expected]);
    }
}

#[test]
fn the_schema_in_a_file_counts_until_there_is_a_file_beside_it() {
    let record =
        SCHEMA.replace(r#""kind":{"#, r#""kind":{"alternate_key":true,"#).replace('\n', "");
    let mut file = Vec::new();
    weir_log::record::write_record(&mut file, record.as_bytes());
    let mut shell = Shell::start_on(file);
    assert_eq!(listed(&mut shell), ["Net Port kind hash declared ready"]);
    assert!(shell.files.contains_key(&key_path(PATH)), "a compaction rewrites the schema");
    shell.command("index/add", &["Net", "Port", "tag"]);
    shell.command("index/drop", &["Net", "Port", "kind"]);
    assert_eq!(listed(&mut restarted(&shell)), ["Net Port tag hash declared ready"]);
    // What was dropped does not come back, though there is nothing else to be kept.
    shell.command("index/drop", &["Net", "Port", "tag"]);
    let mut again = restarted(&shell);
    assert_eq!(listed(&mut again), Vec::<String>::new());
    assert_eq!(listed(&mut restarted(&again)), Vec::<String>::new());
}

#[test]
fn a_configuration_declares_keys_and_takes_them_back() {
    let configuration = |keys: &str| {
        format!(r#"{{"remotes":{{}},"databases":{{"{PATH}":{{{keys}}}}}}}"#).into_bytes()
    };
    let path = "/etc/weir.json";
    let keys = r#""keys":{"Port":{"kind":"hash","tag":"asc"}}"#;
    let files = BTreeMap::from([(path.to_owned(), configuration(keys))]);
    let config = Config { config_file: Some(path.to_owned()), ..Config::default() };
    let mut shell = Shell::start_on_files(file_of(SCHEMA), files, config);
    let both =
        ["Net Port kind hash configuration ready", "Net Port tag ordered configuration, asc ready"];
    assert_eq!(listed(&mut shell), both);
    let refused = error("the key is declared in the configuration file");
    assert_eq!(shell.command("index/drop", &["Net", "Port", "kind"]), refused);
    assert!(!shell.files.contains_key(&key_path(PATH)), "the configuration keeps them");
    // What a configuration does not name is the operator's.
    assert_eq!(shell.command("index/add", &["Net", "Port", "peers"]), ok(""));
    let one = r#""service-model":"standalone","keys":{"Port":{"kind":"hash"}}"#;
    shell.files.insert(path.to_owned(), configuration(one));
    assert_eq!(shell.command("ovsdb-server/reload", &[]), ok(""));
    let expected =
        ["Net Port kind hash configuration ready", "Net Port peers inverted declared ready"];
    assert_eq!(listed(&mut shell), expected);
    // One that makes no sense changes nothing.
    shell.files.insert(path.to_owned(), configuration(r#""keys":{"Port":{"kind":"up"}}"#));
    let failed = shell.command("ovsdb-server/reload", &[]);
    assert!(matches!(failed, Some(Err(_))), "{failed:?}");
    assert_eq!(listed(&mut shell), expected);
}

#[test]
fn first_rows_of_conditional_monitors_come_by_keys() {
    let mut shell = server_of(MANY);
    shell.server.set_step_cost_max(1_000);
    let monitor = |id: u32, kind: &str| {
        format!(
            r#"{{"id":{id},"method":"monitor_cond","params":["Net","m{id}",
               {{"Port":[{{"columns":["name"],"where":[["kind","==","{kind}"]]}}]}}]}}"#
        )
    };
    let swap = r#"{"id":7,"method":"monitor_cond_change","params":["m1","m1",
                  {"Port":[{"where":[["kind","==","k4"]]}]}]}"#;
    let run = |shell: &mut Shell| {
        shell.sent_out.clear();
        let client = shell.connect();
        shell.send(client, &monitor(1, "k3"));
        shell.settle();
        let first = shell.received(client);
        shell.send(client, swap);
        shell.settle();
        let helped: usize = ["Initial", "Change"]
            .iter()
            .map(|what| shell.sent_out.iter().filter(|work| work.starts_with(what)).count())
            .sum();
        (first, shell.received(client), helped)
    };
    let (first, swapped, helped) = run(&mut shell);
    assert_eq!(swapped[0].matches("\"name\"").count(), 10, "{swapped:?}");
    assert_eq!(helped, 2, "a scan costs more than a step");
    assert_eq!(first[0].matches("\"name\"").count(), 10, "{first:?}");
    shell.command("index/add", &["Net", "Port", "kind"]);
    shell.pass_ms(1);
    assert_eq!(run(&mut shell), (first, swapped, 0));
}

/// The coverage counter of this name.
pub(crate) fn counted(shell: &Shell, name: &str) -> u64 {
    let counts: BTreeMap<&str, u64> = shell.server.query_counts().into_iter().collect();
    counts[name]
}

/// What a new client's monitor of the ports that satisfy a condition begins with.
pub(crate) fn first_rows(shell: &mut Shell, condition: &str) -> String {
    let client = shell.connect();
    shell.call(
        client,
        &format!(
            r#"{{"id":1,"method":"monitor_cond","params":["Net","m",
               {{"Port":[{{"columns":["name"],"where":[{condition}]}}]}}]}}"#
        ),
    )
}

#[test]
fn what_monitors_begin_with_is_a_reason_for_a_key_and_pays_for_it() {
    let mut shell = server_of(MANY);
    for n in 0..SCANS - 1 {
        let rows = first_rows(&mut shell, &format!(r#"["kind","==","k{n}"]"#));
        assert_eq!(rows.matches("\"name\"").count(), 10, "{rows}");
    }
    assert_eq!(counted(&shell, "monitor_linear"), SCANS as u64 - 1);
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port kind hash server ready"]);
    let rows = first_rows(&mut shell, r#"["kind","==","k100"],["name","==","p7"]"#);
    assert_eq!(rows.matches("\"name\"").count(), 11, "{rows}");
    assert_eq!(counted(&shell, "monitor_indexed"), 1);
    let Some(Ok(list)) = shell.command("index/list", &[]) else { panic!("it is answered") };
    let saved = list.lines().nth(1).and_then(|line| line.split_whitespace().last());
    assert_eq!(saved, Some("2990"), "{list}");
    // Nor does a key help who wants most rows, or all but some.
    for n in 0..SCANS {
        first_rows(&mut shell, &format!(r#"["tag","<",{}]"#, 90 - n));
        first_rows(&mut shell, &format!(r#"["tag","==",{n}],["kind","!=","k{n}"]"#));
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell).len(), 1);
    for n in 0..SCANS {
        let rows = first_rows(&mut shell, &format!(r#"["tag",">=",{}]"#, 95 + n));
        assert_eq!(rows.matches("\"name\"").count(), 30 * 5_usize.saturating_sub(n), "{rows}");
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell)[1..], ["Net Port tag ordered server ready"]);
    let before = counted(&shell, "monitor_linear");
    let rows = first_rows(&mut shell, r#"["tag","<",2],["kind","==","k3"]"#);
    assert_eq!(rows.matches("\"name\"").count(), 70, "{rows}");
    assert_eq!(counted(&shell, "monitor_linear"), before);
}

#[test]
fn what_other_conditions_look_for_is_a_reason_for_a_key() {
    let mut shell = server_of(MANY);
    let client = shell.connect();
    let monitor = r#"{"id":1,"method":"monitor_cond","params":["Net","m",
                     {"Port":[{"columns":["name"],"where":[["name","==","p999"]]}]}]}"#;
    shell.call(client, monitor);
    for n in 0..SCANS - 1 {
        assert_eq!(counted(&shell, "monitor_linear"), n as u64);
        shell.send(
            client,
            &format!(
                r#"{{"id":7,"method":"monitor_cond_change","params":["m","m",
                   {{"Port":[{{"where":[["peers","includes","a{n}"]]}}]}}]}}"#
            ),
        );
        shell.settle();
        let told = shell.received(client);
        assert_eq!(told[0].matches("\"name\"").count(), 10, "{told:?}");
    }
    shell.pass_ms(1);
    assert_eq!(listed(&mut shell), ["Net Port peers inverted server ready"]);
}

#[test]
fn conditions_that_cannot_be_filed_are_counted() {
    let mut shell = server_of(10);
    for (condition, unfiled) in [
        ("", 0),
        (r#"["kind","==","k0"]"#, 0),
        (r#"["tag",">",5]"#, 1),
        // Who asks for the same makes no more work.
        (r#"["tag",">",5]"#, 1),
        (r#"["kind","==","k0"],["kind","!=","k1"]"#, 2),
    ] {
        first_rows(&mut shell, condition);
        assert_eq!(counted(&shell, "monitor_unfiled"), unfiled, "{condition}");
    }
    let client = shell.connect();
    let monitor = r#"{"id":1,"method":"monitor_cond","params":["Net","m",{"Port":[{}]}]}"#;
    shell.call(client, monitor);
    let change = r#"{"id":7,"method":"monitor_cond_change","params":["m","m",
                    {"Port":[{"where":[["tag","<=",5]]}]}]}"#;
    shell.call(client, change);
    assert_eq!(counted(&shell, "monitor_unfiled"), 3);
}
