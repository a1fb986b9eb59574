//! What the reader says about damaged files, in the reference's words, and what it keeps of them.

mod damage;
mod sample;

use damage::{Outcome, ROW_1, ROW_2, cases, good, text};
use weir_data::Uuid;
use weir_log::record::write_record;
use weir_log::standalone::{LoadError, Loaded, Replayer};

/// Reads a file, and sees that reading its records while they come makes no difference.
fn load(bytes: &[u8]) -> Result<Loaded, LoadError> {
    let mut replayer = Replayer::new("db", 1);
    let whole = replayer.feed(bytes).and_then(|()| replayer.finish());
    for step in [1, 7, 100, bytes.len()] {
        match (&whole, &sample::load_seekable(bytes, step)) {
            (Ok(whole), Ok(pieces)) => {
                assert_eq!(sample::content(&whole.store), sample::content(&pieces.store));
                assert_eq!(whole.warning, pieces.warning);
                let lengths = |of: &Loaded| (of.valid_len, of.file_len, of.records);
                assert_eq!(lengths(whole), lengths(pieces));
            }
            (Err(whole), Err(pieces)) => assert_eq!(whole, pieces),
            (whole, pieces) => panic!("{whole:?} as a whole, {pieces:?} in pieces of {step}"),
        }
    }
    whole
}

fn rows(loaded: &Loaded) -> usize {
    let table = loaded.schema.table_id("T").expect("table T");
    loaded.store.table(table).len()
}

#[test]
fn damage_is_named_and_what_is_before_it_is_kept() {
    let cases = cases();
    assert!(cases.len() > 100, "{}", cases.len());
    for case in cases {
        let name = case.name;
        match (case.outcome, load(&case.bytes)) {
            (Outcome::Good(expected), Ok(loaded)) => {
                assert_eq!(loaded.warning, None, "{name}");
                assert_eq!(rows(&loaded), expected, "{name}");
            }
            (Outcome::Refused(expected), Err(error)) => {
                assert_eq!(error.to_string(), text(&case, expected), "{name}");
            }
            (Outcome::Kept(expected), Ok(loaded)) => {
                assert_eq!(loaded.warning, Some(text(&case, expected)), "{name}");
                assert_eq!(rows(&loaded), 1, "{name}");
                assert_eq!(loaded.valid_len, good().len() as u64, "{name}");
                assert_eq!(loaded.file_len, case.bytes.len() as u64, "{name}");
            }
            (outcome, loaded) => panic!("{name}: {outcome:?} but {loaded:?}"),
        }
    }
}

#[test]
fn a_clustered_database_is_refused_as_such() {
    let mut record = Vec::new();
    write_record(&mut record, b"{}");
    let clustered = String::from_utf8(record).unwrap().replacen("JSON", "CLUSTER", 1);
    for bytes in [clustered.as_bytes(), &clustered.as_bytes()[..60]] {
        let error = load(bytes).unwrap_err().to_string();
        assert!(error.starts_with("db: this is a clustered database"), "{error}");
    }
}

#[test]
fn of_equal_keys_the_last_one_counts() {
    let case =
        |name: &str| load(&cases().into_iter().find(|case| case.name == name).unwrap().bytes);
    let row = |name: &str, row: &str| {
        let content = sample::content(&case(name).unwrap().store);
        content[&("T".to_owned(), Uuid::parse(row).unwrap())].clone()
    };
    let has = |row: &[String], value: &str| row.iter().any(|column| column == value);
    let new = row("two unlike rows", ROW_2);
    assert!(has(&new, "i=0") && has(&new, "two=1"), "{new:?}");
    let changed = row("two changes of a row", ROW_1);
    assert!(has(&changed, "i=1") && has(&changed, "fixed=3"), "{changed:?}");
    let changed = row("two equal columns of a change", ROW_1);
    assert!(has(&changed, "set=\"b\""), "{changed:?}");
}
