//! The databases of the runs: one schema, what it may be converted to, and what it may not.

/// Databases, and the files they are in.
pub(crate) const DATABASES: [(&str, &str); 4] = [
    ("Net", "/db/net.db"),
    ("Two", "/db/two.db"),
    ("Three", "/db/three.db"),
    ("Four", "/db/four.db"),
];

/// A file whose database has a name that is taken, one that is none, and one that is not there.
pub(crate) const BAD_FILES: [&str; 3] = ["/db/same.db", "/db/bad.db", "/db/missing.db"];

pub(crate) const CONFIGURATION: &str = "/etc/weir.json";

const PORT: &str = r#""name":{"type":"string"},"n":{"type":"integer"},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "peer":{"type":{"key":{"type":"uuid","refTable":"Port","refType":"weak"},
        "min":0,"max":"unlimited"}},
    "items":{"type":{"key":{"type":"uuid","refTable":"Item"},"min":0,"max":"unlimited"}},
    "up":{"type":"boolean","ephemeral":true}"#;

const OTHERS: &str = r#""Item":{"columns":{"x":{"type":"integer"},"text":{"type":"string"}}},
    "Manager":{"isRoot":true,"maxRows":3,"columns":{"target":{"type":"string"},
        "inactivity_probe":{"type":{"key":"integer","min":0,"max":1}},
        "is_connected":{"type":"boolean","ephemeral":true},
        "status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"},
            "ephemeral":true}}}"#;

/// What a schema says besides what all have: a version, columns of ports, tables.
pub(crate) const VARIANTS: [(&str, &str, &str); 4] = [
    ("1.0.0", "", ""),
    ("1.1.0", "", r#","Added":{"isRoot":true,"columns":{"x":{"type":"integer"}}}"#),
    ("2.0.0", r#","speed":{"type":"integer"}"#, ""),
    ("2.1.0", r#","speed":{"type":{"key":"integer","min":0,"max":1}}"#, ""),
];

/// A schema; ports are at most so many.
pub(crate) fn schema(name: &str, variant: usize, ports_max: usize) -> String {
    let (version, columns, tables) = VARIANTS[variant % VARIANTS.len()];
    format!(
        r#"{{"name":"{name}","version":"{version}","tables":{{"Port":{{"isRoot":true,
        "maxRows":{ports_max},"columns":{{{PORT}{columns}}},"indexes":[["name"]]}},{OTHERS}{tables}}}}}"#
    )
}

/// A schema to which no rows can be converted: names become numbers.
pub(crate) fn unfit(name: &str) -> String {
    let version = r#""version":"3.0.0""#;
    format!(
        r#"{{"name":"{name}",{version},"tables":{{"Port":{{"isRoot":true,"columns":{{"name":{{"type":"integer"}}}}}}}}}}"#
    )
}

/// The bytes of a new file.
pub(crate) fn file(name: &str, ports_max: usize) -> Vec<u8> {
    let schema = schema(name, 0, ports_max);
    let schema = weir_data::Schema::parse_bytes(schema.as_bytes()).expect("the schema is right");
    let mut file = Vec::new();
    weir_log::standalone::write_schema(&mut file, &schema);
    file
}
