//! `ovsdb-tool` on files that anybody could have written: a byte that chooses the command, a line
//! that is its other argument, and the file's records without headers, one a line.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_log::record::{write_clustered_record, write_record};

const COMMANDS: [&str; 16] = [
    "show-log",
    "check-cluster",
    "query",
    "transact",
    "compact",
    "convert",
    "needs-conversion",
    "db-name",
    "db-version",
    "db-cid",
    "db-sid",
    "db-local-address",
    "db-is-clustered",
    "schema-name",
    "cluster-to-standalone",
    "compare-versions",
];

/// A directory of this process.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("weir-fuzz-tool-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    path
});

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    let mut lines = rest.split(|byte| *byte == b'\n');
    let argument = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut file = Vec::new();
    for line in lines {
        match line {
            [b'!', raw @ ..] => file.extend_from_slice(&[raw, b"\n"].concat()),
            json if first & 0x80 == 0 => write_record(&mut file, json),
            json => write_clustered_record(&mut file, json),
        }
    }
    let path = |name: &str| DIRECTORY.join(name).to_str().expect("UTF-8").to_owned();
    let (database, schema, other) = (path("db"), path("schema"), path("other"));
    fs::write(&database, &file).expect("a file");
    fs::write(&schema, &argument).expect("a file");
    let _ = fs::remove_file(&other);
    let command = COMMANDS[usize::from(first) % COMMANDS.len()];
    let mut args = vec!["-mmm".to_owned(), "-vconsole:off".to_owned(), command.to_owned()];
    args.extend(match command {
        "query" | "transact" => vec![database, argument],
        "compact" => vec![database, other],
        "convert" => vec![database, schema, other],
        "needs-conversion" => vec![database, schema],
        "schema-name" => vec![schema],
        "cluster-to-standalone" => vec![other, database],
        "compare-versions" => argument.split(' ').map(str::to_owned).collect(),
        _ => vec![database],
    });
    weir_cli::fuzzing::tool(args);
});
