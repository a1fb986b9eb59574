//! One run of transactions by clients with roles: over TLS with certificates of their own, and
//! without one, through remotes that a table lists.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Trouble};
use crate::differential::pair::{Extra, Finding, Pair};
use crate::files;
use crate::generate::roles::{self, CLIENTS, GHOST, ROLES};
use crate::generate::{Generator, Schema};
use crate::pki::Pki;
use crate::process::{Program, Scratch, Server};
use crate::reach::Reach;
use crate::rng::Rng;

/// Transactions between two looks at the whole database.
const BATCH: usize = 8;

/// Batches between two changes of the rules.
const BATCHES_A_RULE: usize = 4;

/// How long a server may take to say where it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// The remotes that speak TLS: host and role of each.
const REMOTES: [(&str, &str); 3] =
    [("127.0.0.2", ROLES[0]), ("127.0.0.3", ROLES[1]), ("127.0.0.4", GHOST)];

/// Clients: the remote that each comes through, and its common name.
const GUESTS: [(usize, &str); 6] = [
    (0, CLIENTS[0]),
    (0, CLIENTS[1]),
    (0, CLIENTS[2]),
    (1, CLIENTS[0]),
    (1, CLIENTS[1]),
    (2, CLIENTS[0]),
];

/// How often each client is heard: those without rights and the one without a certificate less.
const WEIGHTS: [usize; GUESTS.len() + 1] = [4, 4, 4, 4, 4, 1, 1];

/// A client with a role and the sessions that it has.
struct Guest {
    /// Common name; empty without a certificate.
    name: &'static str,
    sessions: [Client; 2],
}

/// Certificates of everybody; `None` where there is no `openssl`.
pub fn certificates(name: &str) -> Option<Pki> {
    let pki = Pki::usual(name)?;
    for client in CLIENTS {
        pki.signed(client, "ca", client, Default::default());
    }
    Some(pki)
}

/// Runs about `count` transactions of the schema of `seed`; what they reached.
///
/// # Errors
/// The first difference.
pub fn run(
    programs: &(Program, Program),
    pki: &Pki,
    seed: u64,
    count: usize,
) -> Result<Reach, Finding> {
    let mut rng = Rng::new(seed);
    let schema = roles::owned(Schema::generate(&mut rng));
    let ruled = roles::ruled(schema.clone(), &mut rng);
    let extra = |scratch: &Scratch| remotes(scratch, pki);
    let mut pair = Pair::start_with(programs, [&ruled, &ruled], extra)?;
    let mut guests = guests(&pair, pki)?;
    let mut generator = Generator::new(schema.clone(), rng);
    let mut reach = Reach::default();
    for batch in 0..count.div_ceil(BATCH) {
        if batch % BATCHES_A_RULE == 0 {
            let rules = roles::grant(&mut generator.rng, &schema);
            let answers = pair.exchange(&[rules])?;
            reach.hit(if is_error(&answers[0].a) { "rules refused" } else { "rules" });
        }
        // Without anybody's rows there is nothing to be denied.
        let is_root = batch < 3 || generator.rng.chance(15);
        let outcome = match is_root {
            true => {
                let batch = transactions(&mut generator, CLIENTS[0]);
                pair.exchange(&batch).map(|_| ())
            }
            false => {
                let at = generator.rng.weighted(&WEIGHTS);
                let batch = transactions(&mut generator, guests[at].name);
                let answers = pair.exchange_as(&mut guests[at].sessions, &batch);
                answers.map(|answers| {
                    for (ops, answer) in batch.iter().zip(&answers) {
                        count_verdicts(&mut reach, ops, &answer.a);
                    }
                })
            }
        };
        outcome.map_err(|finding| pair.excuse(finding))?;
        let dump = pair.dump().map_err(|finding| pair.excuse(finding))?;
        generator.observe(dump);
    }
    conversions(&mut guests, &ruled)?;
    Ok(reach)
}

/// Checks that nobody with a role may convert a database.
fn conversions(guests: &mut [Guest], schema: &Schema) -> Result<(), Finding> {
    let params = json!([schema.name, schema.json()]);
    for guest in guests {
        let [a, b] = &mut guest.sessions;
        let (a, b) = (a.request("convert", &params)?, b.request("convert", &params)?);
        if a["error"] != b["error"] || a["error"].is_null() {
            return Err(Finding::Difference(format!("conversion by {}: {a}\n{b}", guest.name)));
        }
    }
    Ok(())
}

fn transactions(generator: &mut Generator, client: &str) -> Vec<Vec<Value>> {
    let one = |_| {
        let mut ops = generator.transaction();
        roles::aim(&mut generator.rng, client, &mut ops);
        ops
    };
    (0..BATCH).map(one).collect()
}

fn count_verdicts(reach: &mut Reach, ops: &[Value], results: &Value) {
    reach.hit("transactions");
    let outcomes = results.as_array().map_or(&[][..], Vec::as_slice);
    let has_error = is_error(results);
    for (op, outcome) in ops.iter().zip(outcomes) {
        let word = op["op"].as_str().unwrap_or_default();
        if outcome["error"] == "permission error" {
            reach.hit(format!("denied {word}"));
        } else if !has_error && (outcome["count"].as_u64() > Some(0) || word == "insert") {
            reach.hit(format!("allowed {word}"));
        }
    }
}

fn is_error(results: &Value) -> bool {
    results.as_array().is_none_or(|all| all.iter().any(|one| one["error"].is_string()))
}

/// A database that lists the remotes, and options that let them speak TLS.
fn remotes(scratch: &Scratch, pki: &Pki) -> Result<[Extra; 2], Trouble> {
    let schema = json!({"name": "Remotes", "tables": {
        "Global": {"isRoot": true, "columns": {"connections": {"type": {
            "key": {"type": "uuid", "refTable": "Connection"}, "min": 0, "max": "unlimited"}}}},
        "Connection": {"columns": {"target": {"type": "string"}, "role": {"type": "string"},
            "inactivity_probe": {"type": "integer"}}}}});
    let mut sides = vec![];
    for side in ["a", "b"] {
        let (file, socket) =
            (scratch.file(&format!("{side}-remotes.db")), plain_socket(scratch, side));
        let mut doors: Vec<_> =
            REMOTES.iter().map(|(host, role)| (format!("pssl:0:{host}"), *role)).collect();
        doors.push((format!("punix:{}", socket.display()), ROLES[0]));
        let uuid = |number: usize| format!("00000000-0000-4000-8000-{number:012}");
        let rows: serde_json::Map<String, Value> = (1..)
            .zip(&doors)
            .map(|(number, (target, role))| (uuid(number), json!({"target": target, "role": role})))
            .collect();
        let all: Vec<_> = rows.keys().map(|uuid| json!(["uuid", uuid])).collect();
        let global = json!({uuid(0): {"connections": ["set", all]}});
        let content = json!({"_date": 1_700_000_000_000_u64, "Global": global, "Connection": rows});
        let records = [schema.to_string(), content.to_string()];
        std::fs::write(&file, records.map(|text| files::record(&text)).concat())?;
        let mut options = vec!["--remote=db:Remotes,Global,connections".to_owned()];
        options.extend(pki.arguments("server"));
        sides.push(Extra { files: vec![file], options });
    }
    <[Extra; 2]>::try_from(sides).map_err(|_| Trouble::Closed)
}

/// The socket for clients without a certificate.
fn plain_socket(scratch: &Scratch, side: &str) -> std::path::PathBuf {
    scratch.file(&format!("{side}.sock"))
}

fn guests(pair: &Pair, pki: &Pki) -> Result<Vec<Guest>, Finding> {
    let mut guests = vec![];
    for (at, name) in GUESTS {
        let enter = |server: &Server| -> Result<Client, Trouble> {
            Client::connect_tls(listening(server, REMOTES[at].0)?, pki, name)
        };
        guests.push(Guest { name, sessions: [enter(&pair.a)?, enter(&pair.b)?] });
    }
    let nameless = |side| Client::connect(&plain_socket(&pair.scratch, side));
    guests.push(Guest { name: "", sessions: [nameless("a")?, nameless("b")?] });
    Ok(guests)
}

/// Where a server listens on this address, as it says in its log.
fn listening(server: &Server, host: &str) -> Result<SocketAddr, Trouble> {
    let deadline = Instant::now() + PATIENCE;
    let marker = format!("{host}: listening on port ");
    while Instant::now() < deadline {
        let log = server.log();
        let port = log.lines().find_map(|line| line.split_once(&marker)?.1.trim().parse().ok());
        if let (Some(port), Ok(ip)) = (port, host.parse()) {
            return Ok(SocketAddr::new(ip, port));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Trouble::Start(format!("{} does not listen on {host}:\n{}", server.label(), server.log())))
}
