//! Files as a process leaves them that is killed at some moment, read again.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_data::delta::{RowDelta, TableDelta};
use weir_data::{Delta, IdKind, Row, Schema, Store, TableId, Uuid};
use weir_history::{BUDGET_BYTES_MAX, History, Name, Record};
use weir_log::standalone::{Style, write_schema, write_transaction_as};

use super::*;
use crate::disk::DatabaseFile;

const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}},
    "isRoot":true}}}"#;

/// A server and the folder of its file.
struct Scene {
    folder: PathBuf,
    path: PathBuf,
    bytes: Vec<u8>,
    store: Store,
    history: History,
    /// All recorded ids so far.
    ids: Vec<Uuid>,
    rows: u128,
}

impl Scene {
    /// A file with a few changes, in a fresh folder.
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("weir-copies-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let hash = write_schema(&mut bytes, &schema);
        let mut history = History::new(hash.0, 1, BUDGET_BYTES_MAX, 1);
        history.keep(IdKind::Recorded);
        let store = Store::new(Arc::new(schema), 1);
        let path = folder.join("conf.db");
        let mut scene = Self { folder, path, bytes, store, history, ids: Vec::new(), rows: 0 };
        (0..5).for_each(|_| scene.commit());
        fs::write(&scene.path, &scene.bytes).unwrap();
        scene
    }

    fn commit(&mut self) {
        self.rows += 1;
        let table = TableId(0);
        let row =
            Row::new(Uuid::from_u128(self.rows), Uuid::ZERO, self.store.schema().table(table));
        let rows = vec![(row.uuid(), RowDelta::Insert(row))];
        let delta = Delta { tables: vec![TableDelta { table, rows }] };
        self.store.apply(&delta);
        let style = Style { is_marked: true, ..Style::PLAIN };
        let written = write_transaction_as(style, &mut self.bytes, &delta, &self.store, 1, None);
        let written = written.unwrap();
        let (hash, body_len) = (written.hash.0, written.body_len);
        let record = Record { name: Name::Hash(hash), body_len, is_marked: true };
        self.history.push(Some(&delta), self.store.schema(), Some(record));
        self.ids.push(self.history.ids().recorded);
    }

    /// A helper writes the copy.
    fn copy(&mut self, file: &mut DatabaseFile, date_ms: i64) -> Copy {
        let place = Place {
            replacement: file.replacement().unwrap(),
            target: file.path().to_owned(),
            like: file.metadata().unwrap(),
        };
        let image = self.history.image();
        place.write(&self.store.snapshot(), ("small", date_ms), |_| Some(image)).unwrap()
    }

    /// The file is opened and read.
    fn open(&self) -> (DatabaseFile, Box<Loaded>) {
        let mut file = DatabaseFile::open(&self.path, &[]).unwrap();
        let reader = File::open(&self.path).unwrap();
        let loaded = load("conf.db", file.path(), reader, 1).unwrap();
        file.set_valid_len(loaded.valid_len()).unwrap();
        (file, loaded)
    }

    /// How many of the states so far are found.
    fn found(&self, loaded: &Loaded) -> usize {
        let tables = || [TableId(0)].into_iter();
        let found = |id: &&Uuid| loaded.history.find(**id, IdKind::Recorded, tables()).is_some();
        self.ids.iter().filter(found).count()
    }

    /// What is in the folder beside the database file, locks left out.
    fn beside(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "conf.db" && !name.ends_with(".~lock~"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_side_file(name: &str) -> bool {
    name.strip_prefix(".conf.db.weir-history-").is_some_and(|hash| hash.len() == 16)
}

#[test]
fn a_kill_at_any_moment_of_a_compaction_leaves_a_pair() {
    let mut scene = Scene::new("kill");
    let (mut file, loaded) = scene.open();
    assert_eq!(scene.found(&loaded), 5);
    fs::set_permissions(&scene.path, fs::Permissions::from_mode(0o640)).unwrap();

    // While the side file is written.
    fs::write(scene.folder.join(".conf.db.weir-history.tmp"), b"weir-history 1\n").unwrap();
    drop(file);
    (file, _) = scene.open();
    assert_eq!(scene.beside(), [""; 0]);

    // Both are written; neither the copy nor the records since have come into their place.
    std::mem::forget(scene.copy(&mut file, 1));
    let names = scene.beside();
    assert!(is_side_file(&names[0]) && names[1] == "conf.db.tmp", "{names:?}");
    let mode = fs::metadata(scene.folder.join(&names[0])).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    drop(file);
    let (mut file, loaded) = scene.open();
    assert_eq!((scene.found(&loaded), loaded.side_file()), (5, None));
    assert_eq!(scene.beside(), ["conf.db.tmp"]);

    // The copy has taken its place.
    let copy = scene.copy(&mut file, 2);
    assert_eq!(copy.problem, None);
    let first = copy.side_file.unwrap().keep().unwrap();
    scene.bytes.clear();
    scene.commit();
    file.replace(copy.replacement, &scene.bytes, false).unwrap();
    drop(file);
    let (mut file, loaded) = scene.open();
    assert_eq!(scene.found(&loaded), 6);
    assert!(first.ends_with(format!(".conf.db.weir-history-{}", loaded.side_file().unwrap())));

    // The next one has, too, and the side file of the last one is still there.
    let copy = scene.copy(&mut file, 3);
    let second = copy.side_file.unwrap().keep().unwrap();
    file.replace(copy.replacement, &[], true).unwrap();
    assert!(first.exists() && second.exists());
    drop(file);
    let (_file, loaded) = scene.open();
    assert_eq!(scene.found(&loaded), 6);
    assert!(second.exists() && !first.exists());

    // Without it the log begins anew.
    fs::remove_file(second).unwrap();
    drop(_file);
    let (_file, loaded) = scene.open();
    assert_eq!((scene.found(&loaded), loaded.side_file()), (0, None));
}

#[test]
fn a_copy_that_is_discarded_takes_its_side_file_along() {
    let mut scene = Scene::new("discard");
    let (mut file, _) = scene.open();
    let copy = scene.copy(&mut file, 1);
    assert_eq!(scene.beside().len(), 2);
    drop(copy);
    assert_eq!(scene.beside(), [""; 0]);
}

#[test]
fn a_copy_goes_on_without_a_side_file_that_cannot_be_written() {
    let mut scene = Scene::new("failure");
    let (mut file, _) = scene.open();
    fs::create_dir_all(scene.folder.join(".conf.db.weir-history.tmp/in the way")).unwrap();
    let copy = scene.copy(&mut file, 1);
    assert_eq!(copy.problem.as_deref(), Some("Is a directory"));
    assert!(copy.side_file.is_none());
    file.replace(copy.replacement, &[], true).unwrap();
    drop(file);
    let (_file, loaded) = scene.open();
    assert_eq!((scene.found(&loaded), loaded.side_file()), (0, None));
}

#[test]
fn a_side_file_is_beside_the_file_that_a_link_leads_to() {
    let mut scene = Scene::new("link");
    let folder = scene.folder.join("real");
    fs::create_dir(&folder).unwrap();
    fs::rename(&scene.path, folder.join("data")).unwrap();
    symlink("real/data", &scene.path).unwrap();
    let (mut file, _) = scene.open();
    let copy = scene.copy(&mut file, 1);
    let side_file = copy.side_file.unwrap().keep().unwrap();
    file.replace(copy.replacement, &[], true).unwrap();
    assert_eq!(side_file.parent(), Some(fs::canonicalize(&folder).unwrap().as_path()));
    drop(file);
    assert!(fs::symlink_metadata(&scene.path).unwrap().is_symlink());
    let (_file, loaded) = scene.open();
    assert_eq!(scene.found(&loaded), 5);
}

#[test]
fn of_many_candidates_the_newest_are_read_and_none_that_is_too_long() {
    let mut scene = Scene::new("many");
    let (mut file, _) = scene.open();
    let long = scene.folder.join(".conf.db.weir-history-0000000000000000");
    File::create(&long).unwrap().set_len(1 << 40).unwrap();
    for n in 1..20 {
        fs::write(scene.folder.join(format!(".conf.db.weir-history-{n:016}")), b"?").unwrap();
    }
    let folder = scene.folder.join(".conf.db.weir-history-ffffffffffffffff");
    fs::create_dir(&folder).unwrap();
    let link = scene.folder.join(".conf.db.weir-history-eeeeeeeeeeeeeeee");
    symlink("conf.db", &link).unwrap();
    // Not ours, but of databases `other.db` and `conf.db.weir-history-other`.
    let others = [
        ".other.db.weir-history-0000000000000000",
        ".conf.db.weir-history-other.~lock~",
        ".conf.db.weir-history-other.weir-history-0000000000000000",
    ];
    let others = others.map(|name| scene.folder.join(name));
    others.iter().for_each(|other| fs::write(other, b"of another database").unwrap());
    let copy = scene.copy(&mut file, 1);
    let side_file = copy.side_file.unwrap().keep().unwrap();
    file.replace(copy.replacement, &[], true).unwrap();
    drop(file);
    assert_eq!(candidates(&scene.path).len(), 21);
    let (_file, loaded) = scene.open();
    assert_eq!(scene.found(&loaded), 5);
    let kept = [&side_file, &folder, &link].into_iter().chain(&others);
    assert!(kept.clone().all(|path| fs::symlink_metadata(path).is_ok()));
    let left = scene.beside();
    // Locks are not listed.
    assert_eq!(left.len() + 1, kept.count(), "{left:?}");
}

/// The programs of Open vSwitch do not know side files, and what they do to a file ends what one
/// is good for.
#[test]
fn a_file_that_another_program_compacts_has_no_side_file_any_more() {
    let mut scene = Scene::new("foreign");
    let (mut file, _) = scene.open();
    let copy = scene.copy(&mut file, 1);
    let side_file = copy.side_file.unwrap().keep().unwrap();
    file.replace(copy.replacement, &[], true).unwrap();
    drop(file);
    let tool = |args: &[&str], path: &Path| {
        std::process::Command::new("ovsdb-tool").args(args).arg(path).output()
    };
    let Ok(shown) = tool(&["show-log"], &scene.path) else {
        return eprintln!("skipped: the reference's programs are not installed");
    };
    assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
    let compacted = tool(&["compact"], &scene.path).unwrap();
    assert!(compacted.status.success(), "{compacted:?}");
    assert!(side_file.exists());
    let (_file, loaded) = scene.open();
    assert_eq!((scene.found(&loaded), loaded.side_file()), (0, None));
    assert!(!side_file.exists());
}
