//! What is to be served, as a value: read from and written as the JSON of `--config-file`
//! (ovsdb-server(1)), whether it came from a file, the command line or admin commands.

use std::collections::BTreeMap;

use weir_data::DeclaredKeys;
use weir_data::parser::{ARRAY, BOOL, INTEGER, OBJECT, OPTIONAL, Parser, STRING};
use weir_json::{Framer, Kind, Text, Value, object};
use weir_upstream::backoff;
use weir_upstream::session::Options;

use crate::effect::RemoteOptions;

/// Probe interval of a replication unless configured, in milliseconds.
pub(crate) const REPLICATION_PROBE_MS: u64 = 60_000;

/// How a database is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    Standalone,
    Clustered,
    ActiveBackup,
    Relay,
}

impl Model {
    const NAMES: [(&str, Self); 4] = [
        ("standalone", Self::Standalone),
        ("clustered", Self::Clustered),
        ("active-backup", Self::ActiveBackup),
        ("relay", Self::Relay),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, model)| *model == self).map_or("", |(name, _)| name)
    }

    /// Whether a database goes on being served when its configuration becomes `next`.
    pub(crate) fn can_become(self, next: Option<Self>) -> bool {
        match next {
            None => matches!(self, Self::Standalone | Self::Clustered),
            Some(next) if next == self => true,
            Some(next) => matches!(
                (self, next),
                (Self::Standalone, Self::ActiveBackup) | (Self::ActiveBackup, Self::Standalone)
            ),
        }
    }
}

/// Another server to follow, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) target: String,
    pub(crate) probe_ms: u64,
    pub(crate) max_backoff_ms: u64,
    pub(crate) dscp: Option<u8>,
}

impl Source {
    /// A source with default options.
    pub(crate) fn new(target: &str, probe_ms: u64) -> Self {
        Self { target: target.to_owned(), probe_ms, max_backoff_ms: backoff::MS_MAX, dscp: None }
    }

    pub(crate) fn session_options(&self) -> Options {
        Options { probe_ms: self.probe_ms, max_backoff_ms: self.max_backoff_ms }
    }
}

/// How one database is to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DbConfig {
    /// `None` for whatever its file says.
    pub(crate) model: Option<Model>,
    pub(crate) source: Option<Source>,
    /// Of an active-backup database: it follows its source.
    pub(crate) backup: bool,
    /// Tables that are not replicated, as the user wrote them: `DB:TABLE` or `TABLE`.
    pub(crate) exclude: Option<String>,
    /// Keys on columns.
    pub(crate) keys: DeclaredKeys,
}

/// All that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub(crate) remotes: BTreeMap<String, RemoteOptions>,
    /// By file, or by schema for a relay; in the order of the command line.
    pub(crate) databases: Vec<(String, DbConfig)>,
    /// `--sync-from`
    pub(crate) sync_from: Option<String>,
    /// `--sync-exclude-tables`
    pub(crate) sync_exclude: Option<String>,
    /// Databases that are added follow `sync_from`.
    pub(crate) is_backup: bool,
}

/// The names in a list of tables to exclude: separated by commas or white space.
fn excluded_names(list: &str) -> impl Iterator<Item = &str> {
    list.split([' ', ',']).filter(|name| !name.is_empty())
}

/// Checks a list of tables to exclude; the error is the reference's.
///
/// # Errors
/// A name without `:`.
pub fn check_excluded(list: &str) -> Result<(), String> {
    for name in excluded_names(list) {
        let mut parts = name.split(':').filter(|part| !part.is_empty());
        if parts.next().zip(parts.next()).is_none() {
            return Err(format!("Can't parse excluded table: {name}"));
        }
    }
    Ok(())
}

/// The tables of one database that such a list names.
pub(crate) fn excluded_tables<'a>(list: &'a str, db: &str) -> impl Iterator<Item = &'a str> {
    excluded_names(list).filter_map(move |name| match name.split_once(':') {
        None => Some(name),
        Some((of, table)) => (of == db).then_some(table),
    })
}

impl Configuration {
    /// Reads a configuration; what is to be said about it goes to `warnings`. `None` if nothing of
    /// it counts.
    pub fn parse(bytes: &[u8], warnings: &mut Vec<String>) -> Option<Self> {
        let text = match first_value(bytes) {
            Ok(text) => text,
            Err(error) => {
                warnings.push(format!("config: reading JSON failed ({error})"));
                return None;
            }
        };
        let Some(members) = text.object().filter(|_| text.kind() == Kind::Object) else {
            warnings.push("configuration in a file must be a JSON object".to_owned());
            return None;
        };
        let Some(remotes) = remotes(members.get("remotes"), warnings) else {
            warnings.push("config: failed to parse 'remotes'".to_owned());
            return None;
        };
        let Some(databases) = databases(members.get("databases"), warnings) else {
            warnings.push("config: failed to parse 'databases'".to_owned());
            return None;
        };
        let string = |name: &str| members.get(name)?.str().map(|text| text.into_owned());
        Some(Self {
            remotes,
            databases,
            sync_from: string("sync_from"),
            sync_exclude: string("sync_exclude"),
            is_backup: members.get("is_backup").and_then(Text::bool).unwrap_or(false),
        })
    }

    /// The JSON that [`Configuration::parse`] reads.
    pub fn to_value(&self) -> Value {
        let remotes = self.remotes.iter().map(|(target, options)| {
            let options = options_value(options.probe_ms, options.max_backoff_ms, options.dscp)
                .chain(options.read_only.then_some(("read-only", Value::Bool(true))))
                .chain((!options.role.is_empty()).then(|| ("role", options.role.as_str().into())));
            (target.clone(), members(options))
        });
        let databases =
            self.databases.iter().map(|(name, config)| (name.clone(), config.to_value()));
        let mut all = object([
            ("remotes", Value::Object(remotes.collect())),
            ("databases", Value::Object(databases.collect())),
            ("is_backup", self.is_backup.into()),
        ]);
        if let Value::Object(all) = &mut all {
            let strings = [("sync_from", &self.sync_from), ("sync_exclude", &self.sync_exclude)];
            for (name, value) in strings {
                let value = value.as_ref().map(|value| Value::from(value.as_str()));
                all.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        all
    }
}

/// The first object or array of a text; what follows it does not matter.
fn first_value(bytes: &[u8]) -> Result<Text<'_>, weir_json::Error> {
    let end = Framer::new().feed(bytes).ok().flatten().unwrap_or(bytes.len());
    weir_json::validate(bytes.get(..end).unwrap_or(bytes))
}

fn members<'n>(members: impl Iterator<Item = (&'n str, Value)>) -> Value {
    Value::Object(members.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn options_value(
    probe_ms: Option<u64>,
    max_backoff_ms: Option<u64>,
    dscp: Option<u8>,
) -> impl Iterator<Item = (&'static str, Value)> {
    let integer = |ms: u64| Value::Integer(i64::try_from(ms).unwrap_or(i64::MAX));
    let probe = probe_ms.map(|ms| ("inactivity-probe", integer(ms)));
    let backoff = max_backoff_ms.map(|ms| ("max-backoff", integer(ms)));
    let dscp = dscp.map(|dscp| ("dscp", integer(dscp.into())));
    probe.into_iter().chain(backoff).chain(dscp)
}

impl DbConfig {
    fn to_value(&self) -> Value {
        let model = self.model.map(|model| ("service-model", Value::from(model.name())));
        let source = self.source.as_ref().map(|source| {
            let (probe, backoff) = (Some(source.probe_ms), Some(source.max_backoff_ms));
            let options = members(options_value(probe, backoff, source.dscp));
            ("source", Value::Object([(source.target.clone(), options)].into()))
        });
        let is_backup = self.model == Some(Model::ActiveBackup);
        let backup = is_backup.then_some(("backup", Value::Bool(self.backup)));
        let exclude = self.exclude.as_ref().filter(|_| is_backup).map(|list| {
            ("exclude-tables", Value::Array(excluded_names(list).map(Value::from).collect()))
        });
        let keys = (!self.keys.is_empty()).then(|| ("keys", self.keys.to_value()));
        members(model.into_iter().chain(source).chain(backup).chain(exclude).chain(keys))
    }

    fn parse(name: &str, text: Text<'_>, warnings: &mut Vec<String>) -> Option<Self> {
        if text.kind() == Kind::Null {
            return Some(Self::default());
        }
        let what = format!("database {name}");
        let mut parser = Parser::new(text, &what);
        let mut config = Self::default();
        if let Some(model) = parser.string("service-model", STRING | OPTIONAL) {
            config.model = Model::parse(&model);
            if config.model.is_none() {
                warnings.push(format!("Unrecognized database service model: '{model}'"));
                parser.complain(format_args!("'{model}' is not a valid service model"));
            }
        }
        let is_backup = config.model == Some(Model::ActiveBackup);
        if is_backup {
            config.backup = parser.member("backup", BOOL).and_then(Text::bool).unwrap_or(false);
            config.exclude = parse_excluded(&mut parser);
        }
        if is_backup || config.model == Some(Model::Relay) {
            // An active database need not know whom it would follow.
            let optional = if is_backup && !config.backup { OPTIONAL } else { 0 };
            let default_probe_ms = if is_backup { REPLICATION_PROBE_MS } else { RELAY_PROBE_MS };
            config.source = parser
                .member("source", OBJECT | optional)
                .and_then(|source| parse_source(&mut parser, source, default_probe_ms, warnings));
        }
        if let Some(keys) = parser.member("keys", OBJECT | OPTIONAL) {
            match DeclaredKeys::parse(keys) {
                Some(keys) => config.keys = keys,
                None => parser.complain(
                    "'keys' must be objects by table that say \"hash\", \"asc\" or \"desc\" by column",
                ),
            }
        }
        match parser.finish() {
            Ok(()) => Some(config),
            Err(error) => {
                warnings.push(error.to_string());
                None
            }
        }
    }
}

/// Probe interval of a relay unless configured, in milliseconds.
pub(crate) const RELAY_PROBE_MS: u64 = 5000;

fn parse_excluded(parser: &mut Parser<'_, '_>) -> Option<String> {
    let list = parser.member("exclude-tables", ARRAY | OPTIONAL)?;
    let mut names = Vec::new();
    for name in list.elements().into_iter().flatten() {
        match name.str() {
            // No table has a comma or a blank in its name.
            Some(name) => names.extend(excluded_names(&name).map(str::to_owned)),
            None => parser.complain("'exclude-tables' must contain strings"),
        }
    }
    names.sort();
    names.dedup();
    Some(names.join(","))
}

fn parse_source(
    parser: &mut Parser<'_, '_>,
    source: Text<'_>,
    default_probe_ms: u64,
    warnings: &mut Vec<String>,
) -> Option<Source> {
    let source = source.object()?;
    let mut sources = source.iter();
    let (Some((target, options)), None) = (sources.next(), sources.next()) else {
        parser.complain("'source' should be an object with exactly one element");
        return None;
    };
    let mut source = Source::new(&String::from_utf8_lossy(target), default_probe_ms);
    match options.kind() {
        Kind::Object => {
            let options = parse_options(options, false, warnings);
            source.probe_ms = options.probe_ms.unwrap_or(source.probe_ms);
            source.max_backoff_ms = options.max_backoff_ms.unwrap_or(source.max_backoff_ms);
            source.dscp = options.dscp;
        }
        Kind::Null => {}
        _ => parser.complain("JSON-RPC options is not a JSON object or null"),
    }
    Some(source)
}

/// Options of a connection; `of_remote`: also those that only sessions of a listener have. What is
/// wrong with them is said, and the others count.
fn parse_options(text: Text<'_>, of_remote: bool, warnings: &mut Vec<String>) -> RemoteOptions {
    let mut parser = Parser::new(text, &"JSON-RPC options");
    // Below zero is as short as can be.
    let ms = |value: Text<'_>| value.integer().map(|ms| u64::try_from(ms).unwrap_or(1));
    let mut options = RemoteOptions {
        max_backoff_ms: parser.member("max-backoff", INTEGER | OPTIONAL).and_then(ms),
        probe_ms: parser.member("inactivity-probe", INTEGER | OPTIONAL).and_then(ms),
        ..RemoteOptions::default()
    };
    let dscp = parser.member("dscp", INTEGER | OPTIONAL).and_then(Text::integer);
    options.dscp = dscp.and_then(|dscp| u8::try_from(dscp).ok()).filter(|dscp| *dscp < 64);
    if of_remote {
        let read_only = parser.member("read-only", BOOL | OPTIONAL).and_then(Text::bool);
        options.read_only = read_only.unwrap_or(false);
        options.role = parser.string("role", STRING | OPTIONAL).unwrap_or_default();
    }
    if let Err(error) = parser.finish() {
        warnings.push(error.to_string());
    }
    options
}

fn remotes(
    text: Option<Text<'_>>,
    warnings: &mut Vec<String>,
) -> Option<BTreeMap<String, RemoteOptions>> {
    let mut remotes = BTreeMap::new();
    let Some(text) = text.filter(|text| text.kind() != Kind::Null) else { return Some(remotes) };
    let Some(all) = text.object().filter(|_| text.kind() == Kind::Object) else {
        warnings.push("config: 'remotes' is not a JSON object".to_owned());
        return None;
    };
    for (target, options) in all.iter() {
        let target = String::from_utf8_lossy(target).into_owned();
        let options = match options.kind() {
            Kind::Object => parse_options(options, true, warnings),
            Kind::Null => RemoteOptions::default(),
            _ => {
                let text = format!("{target}: JSON-RPC options are not a JSON object or null");
                warnings.push(text);
                return None;
            }
        };
        remotes.insert(target, options);
    }
    Some(remotes)
}

fn databases(
    text: Option<Text<'_>>,
    warnings: &mut Vec<String>,
) -> Option<Vec<(String, DbConfig)>> {
    let Some(text) = text.filter(|text| text.kind() != Kind::Null) else { return Some(Vec::new()) };
    let Some(all) = text.object().filter(|_| text.kind() == Kind::Object) else {
        warnings.push("config: 'databases' is not a JSON object or null".to_owned());
        return None;
    };
    let parse = |(name, config): (&[u8], Text<'_>)| {
        let name = String::from_utf8_lossy(name).into_owned();
        DbConfig::parse(&name, config, warnings).map(|config| (name, config))
    };
    // By name as it is kept: bytes that are not UTF-8 are replaced, which may change the order.
    let by_name: BTreeMap<_, _> = all.iter().map(parse).collect::<Option<_>>()?;
    Some(by_name.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said about a configuration that does not count.
    fn refused(text: &str) -> String {
        let mut warnings = Vec::new();
        assert_eq!(Configuration::parse(text.as_bytes(), &mut warnings), None, "{text}");
        warnings.join("\n")
    }

    fn read(text: &str) -> (Configuration, Vec<String>) {
        let mut warnings = Vec::new();
        let configuration = Configuration::parse(text.as_bytes(), &mut warnings);
        (configuration.unwrap_or_else(|| panic!("{text}: {warnings:?}")), warnings)
    }

    #[test]
    fn the_file_of_the_manual_page() {
        let (configuration, warnings) = read(
            r#"{"remotes":{"punix:db.sock":{},"pssl:6641":{"inactivity-probe":16000,
                "read-only":false,"role":"ovn-controller"},"ptcp:6642":null},
                "databases":{"conf.db":{},"sb.db":{"service-model":"active-backup","backup":true,
                "source":{"tcp:h:6":{"inactivity-probe":10000,"max-backoff":500,"dscp":32}},
                "exclude-tables":["U","T"]},"x.db":null}} trailing"#,
        );
        assert_eq!(warnings, Vec::<String>::new());
        let pssl = &configuration.remotes["pssl:6641"];
        assert_eq!((pssl.probe_ms, pssl.role.as_str()), (Some(16_000), "ovn-controller"));
        assert_eq!(configuration.remotes.len(), 3);
        let (name, sb) = &configuration.databases[1];
        assert_eq!(
            (name.as_str(), sb.model, sb.backup),
            ("sb.db", Some(Model::ActiveBackup), true)
        );
        assert_eq!(sb.exclude.as_deref(), Some("T,U"));
        let source = sb.source.clone().unwrap();
        assert_eq!((source.probe_ms, source.max_backoff_ms, source.dscp), (10_000, 500, Some(32)));
        let written = configuration.to_value().to_string();
        assert_eq!(read(&written).0, configuration);
    }

    #[test]
    fn mistakes_are_named_as_the_reference_names_them() {
        let db = |config: &str| format!(r#"{{"remotes":{{}},"databases":{{"D":{config}}}}}"#);
        let syntax = |json: &str, what: &str| {
            let json =
                format!("syntax \"{json}\": syntax error: Parsing database D failed: {what}");
            format!("{json}\nconfig: failed to parse 'databases'")
        };
        let bad_model = r#"{"service-model":"x"}"#;
        assert_eq!(
            refused(&db(bad_model)),
            format!(
                "Unrecognized database service model: 'x'\n{}",
                syntax(bad_model, "'x' is not a valid service model")
            )
        );
        for (config, what) in [
            (r#"{"service-model":"relay"}"#, "Required 'source' member is missing."),
            (r#"{"service-model":"active-backup"}"#, "Required 'backup' member is missing."),
            (r#"{"backup":true}"#, "Member 'backup' is present but not allowed here."),
            (
                r#"{"service-model":"relay","source":{}}"#,
                "'source' should be an object with exactly one element",
            ),
            (
                r#"{"service-model":"relay","source":{"tcp:h":5}}"#,
                "JSON-RPC options is not a JSON object or null",
            ),
        ] {
            assert_eq!(refused(&db(config)), syntax(config, what));
        }
        assert_eq!(
            refused(r#"{"remotes":{"ptcp:1":5}}"#),
            "ptcp:1: JSON-RPC options are not a JSON object or null\n\
             config: failed to parse 'remotes'"
        );
        assert_eq!(refused("[]"), "configuration in a file must be a JSON object");
        assert_eq!(
            refused("{\n  remotes: {}\n}"),
            "config: reading JSON failed (line 1, column 9, byte 11: invalid keyword 'remotes')"
        );
        assert_eq!(
            refused(r#"{"remotes":{},7:{}}"#),
            "config: reading JSON failed (line 0, column 15, byte 15: syntax error parsing object \
             expecting string)"
        );
    }

    #[test]
    fn an_unknown_option_is_said_and_the_others_count() {
        let (configuration, warnings) =
            read(r#"{"remotes":{"ptcp:1":{"color":"red","inactivity-probe":-5}}}"#);
        assert_eq!(configuration.remotes["ptcp:1"].probe_ms, Some(1));
        let expected = "syntax error: Parsing JSON-RPC options failed: Member 'color' is present \
                        but not allowed here.";
        assert!(warnings[0].ends_with(expected), "{warnings:?}");
    }

    #[test]
    fn excluded_tables_are_of_one_database() {
        let of = |list: &'static str| excluded_tables(list, "D").collect::<Vec<_>>();
        assert_eq!(of("D:T, E:U,V"), ["T", "V"]);
        assert_eq!(of(""), Vec::<&str>::new());
        assert_eq!(check_excluded("D:T E:U"), Ok(()));
        assert_eq!(check_excluded("D:T,U"), Err("Can't parse excluded table: U".into()));
        assert_eq!(check_excluded("D:"), Err("Can't parse excluded table: D:".into()));
    }

    #[test]
    fn only_standalone_and_active_backup_turn_into_each_other() {
        use Model::{ActiveBackup, Clustered, Relay, Standalone};
        let all = [Standalone, Clustered, ActiveBackup, Relay];
        for from in all {
            for to in all {
                let pair = [Standalone, ActiveBackup];
                let expected = from == to || pair.contains(&from) && pair.contains(&to);
                assert_eq!(from.can_become(Some(to)), expected, "{from:?} {to:?}");
            }
        }
        assert!(Standalone.can_become(None) && !ActiveBackup.can_become(None));
    }
}
