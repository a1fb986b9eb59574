//! Torn tails, failed appends, replacement, and the lock against another process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::disk::room::ROOM_BYTES;
use crate::disk::tail::{TAIL_BYTES_MAX, TAILS_MAX};

/// A fresh directory with a database file that holds `content`.
fn database(name: &str, content: &str) -> (PathBuf, PathBuf) {
    let directory = std::env::temp_dir().join(format!("weir-disk-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("conf.db");
    fs::write(&path, content).unwrap();
    (directory, path)
}

fn opened(path: &Path, valid_len: u64) -> DatabaseFile {
    let mut file = DatabaseFile::open(path, &[]).unwrap();
    file.set_valid_len(valid_len).unwrap();
    file
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_torn_tail_goes_with_the_first_append_and_not_before() {
    let (directory, path) = database("torn", "good1\ngood2\nto");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut file = opened(&path, 12);
    assert_eq!(text(&path), "good1\ngood2\nto");
    file.append(b"x\n", true).unwrap();
    file.append(b"y\n", false).unwrap();
    assert_eq!(text(&path), "good1\ngood2\nx\ny\n");
    let kept = directory.join("conf.db.torn.1");
    assert_eq!(text(&kept), "to");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
    let (shown, kept) = (path.display(), kept.display());
    assert_eq!(
        file.take_notice().unwrap(),
        format!(
            "{shown}: what follows offset 12 cannot be read and is cut off; its 2 bytes are kept \
             in {kept}"
        )
    );
    assert_eq!(file.take_notice(), None);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn of_many_torn_tails_the_last_ones_are_kept() {
    let (directory, path) = database("tails", "good\n");
    for n in 1..=TAILS_MAX + 2 {
        fs::write(&path, format!("good\ntail {n}")).unwrap();
        opened(&path, 5).append(b"x\n", false).unwrap();
        // So that their ages differ.
        let kept = directory.join(format!("conf.db.torn.{}", (n - 1) % TAILS_MAX + 1));
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(n.into());
        File::options().write(true).open(kept).unwrap().set_modified(time).unwrap();
    }
    let kept = |n: u32| text(&directory.join(format!("conf.db.torn.{n}")));
    assert_eq!([kept(1), kept(2), kept(3), kept(4)], ["tail 5", "tail 6", "tail 3", "tail 4"]);
    assert!(!directory.join("conf.db.torn.5").exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn of_a_long_torn_tail_the_beginning_is_kept() {
    let (directory, path) = database("long-tail", "good\n");
    let all = TAIL_BYTES_MAX + 1000;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(5 + all).unwrap();
    let mut file = opened(&path, 5);
    file.append(b"x\n", false).unwrap();
    let kept = directory.join("conf.db.torn.1");
    assert_eq!(fs::metadata(kept).unwrap().len(), TAIL_BYTES_MAX);
    let notice = file.take_notice().unwrap();
    assert!(
        notice.contains(&format!("; the first {TAIL_BYTES_MAX} of its {all} bytes")),
        "{notice}"
    );
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_torn_tail_that_cannot_be_kept_holds_up_nobody() {
    let (directory, path) = database("no-room", "good\nto");
    for n in 1..=TAILS_MAX {
        // A directory cannot make room.
        fs::create_dir(directory.join(format!("conf.db.torn.{n}"))).unwrap();
    }
    let mut file = opened(&path, 5);
    file.append(b"x\n", false).unwrap();
    assert_eq!(text(&path), "good\nx\n");
    let notice = file.take_notice().unwrap();
    assert!(notice.contains("; it could not be kept ("), "{notice}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_replacement_keeps_what_could_not_be_read_too() {
    let (directory, path) = database("torn-replaced", "good\nto");
    let mut file = opened(&path, 5);
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"new\n").unwrap();
    file.replace(replacement, b"", false).unwrap();
    assert_eq!(text(&path), "new\n");
    assert_eq!(text(&directory.join("conf.db.torn.1")), "to");
    fs::remove_dir_all(directory).unwrap();
}

/// Somebody moves the file to another disk: a copy there, the link turned, and a compaction for what came since.
#[test]
fn a_replacement_is_where_the_link_leads_to_by_then() {
    let (directory, path) = database("turned", "unused\n");
    let directory = fs::canonicalize(directory).unwrap();
    fs::remove_file(&path).unwrap();
    let places = ["disk1", "disk2", "disk3"].map(|disk| directory.join(disk).join("conf.db"));
    for place in &places {
        fs::create_dir(place.parent().unwrap()).unwrap();
        fs::write(place, "good\n").unwrap();
    }
    let turn = |place: &Path| {
        let _ = fs::remove_file(&path);
        symlink(place, &path).unwrap();
    };
    turn(&places[0]);
    let mut file = opened(&path, 5);
    let held: Vec<Identity> = file.held().collect();
    assert!(file.follow_name(&held).unwrap().is_none());
    let like = file.metadata().unwrap();
    key_file::write_keys(&places[0], &like, Some(b"keys")).unwrap();

    turn(&places[1]);
    let served_there = opened(&places[1], 5);
    let all: Vec<Identity> = file.held().chain(served_there.held()).collect();
    assert!(file.follow_name(&all).is_err(), "another database is there");
    drop(served_there);
    assert_eq!(file.follow_name(&held).unwrap(), Some(places[1].as_path()));
    assert_eq!(file.held().count(), 2, "nobody else opens it where it still is");
    for place in [0, 1] {
        turn(&places[place]);
        let all: Vec<Identity> = file.held().collect();
        assert_eq!(file.follow_name(&all).unwrap(), Some(places[place].as_path()));
    }
    file.append(b"more\n", false).unwrap();
    assert_eq!(text(&places[0]), "good\nmore\n");
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"new\n").unwrap();
    file.replace(replacement, b"tail\n", true).unwrap();
    file.append(b"last\n", true).unwrap();
    assert_eq!(text(&places[1]), "new\ntail\nlast\n");
    assert_eq!(key_file::read_keys(&places[1]).as_deref(), Some(&b"keys"[..]));
    assert_eq!(file.held().count(), 1);
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());

    // A file that somebody has removed is made anew, by whatever way its folder is reached.
    let (folder, around) = (directory.join("disk1"), directory.join("around"));
    symlink(&folder, &around).unwrap();
    let mut removed = opened(&around.join("conf.db"), 5);
    fs::remove_file(folder.join("conf.db")).unwrap();
    let held: Vec<Identity> = removed.held().collect();
    assert!(removed.follow_name(&held).unwrap().is_none());
    let replacement = removed.replacement().unwrap();
    removed.replace(replacement, b"", true).unwrap();
    assert_eq!(text(&folder.join("conf.db")), "");
    drop(removed);

    // What leads nowhere is not followed, and a file that is not there yet is made.
    turn(&directory.join("gone").join("conf.db"));
    assert!(file.follow_name(&held).unwrap().is_none());
    fs::remove_file(&places[2]).unwrap();
    turn(&places[2]);
    assert_eq!(file.follow_name(&held).unwrap(), Some(places[2].as_path()));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn nothing_of_a_failed_append_stays() {
    let (directory, path) = database("failed", "good\n");
    let mut file = opened(&path, 5);
    file.exchange(File::open(&path).unwrap());
    assert_eq!(file.append(b"x\n", false), Err("Bad file descriptor".to_owned()));
    assert!(file.torn, "it could not be cut off either, so the next append must try again");
    file.exchange(OpenOptions::new().write(true).open(&path).unwrap());
    file.file.set_len(9).unwrap();
    file.append(b"y\n", false).unwrap();
    assert_eq!(text(&path), "good\ny\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_no_half_record() {
    let Ok(full) = OpenOptions::new().read(true).write(true).open("/dev/full") else { return };
    let (directory, path) = database("full", "good\n");
    let mut file = opened(&path, 5);
    file.exchange(full);
    assert_eq!(file.append(b"x\n", false), Err("No space left on device".to_owned()));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_a_process_that_was_killed_has_left_beside_the_file_is_removed() {
    let (directory, path) = database("left_over", "old1\nold2\n");
    let left = ["conf.db.tmp", ".conf.db.weir-history.tmp", ".conf.db.weir-keys.tmp"];
    left.iter().for_each(|name| fs::write(directory.join(name), "left over").unwrap());
    let mut file = opened(&path, 10);
    // The first name is one that somebody may have given to a copy, or to another database.
    assert_eq!(left.map(|name| directory.join(name).exists()), [true, false, false]);
    drop(file.replacement().unwrap());
    assert!(!directory.join(left[0]).exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_replacement_takes_the_place_behind_the_symbolic_link_and_keeps_the_mode() {
    let (directory, path) = database("replace", "old1\nold2\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    let link = directory.join("link.db");
    symlink("conf.db", &link).unwrap();
    fs::write(directory.join("conf.db.tmp"), "left over").unwrap();
    let mut file = opened(&link, 10);
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"new\n").unwrap();
    replacement.sync().unwrap();
    file.append(b"meanwhile\n", false).unwrap();
    assert_eq!(text(&path), "old1\nold2\nmeanwhile\n");
    assert_eq!(file.replace(replacement, b"meanwhile\n", false), Ok(14));
    assert!(file.renamed.load(Ordering::Acquire));
    file.directory_sync()();
    assert!(!file.renamed.load(Ordering::Acquire));
    file.append(b"later\n", false).unwrap();
    assert_eq!(text(&path), "new\nmeanwhile\nlater\n");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
    let mut names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".conf.db.~lock~", "conf.db", "link.db"]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn durability_promised_in_the_old_file_holds_in_the_new_one() {
    let (directory, path) = database("promised", "old\n");
    let mut file = opened(&path, 4);
    assert!(!file.is_shown(), "who had it before may have ended behind its rename");
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"new\n").unwrap();
    file.append(b"promised\n", true).unwrap();
    assert!(file.is_shown());
    assert!(file.promised, "so the tail of the replacement waits for the disk");
    file.replace(replacement, b"promised\n", false).unwrap();
    file.append(b"later\n", true).unwrap();
    assert!(!file.renamed.load(Ordering::Acquire), "nor may the rename get lost");
    assert_eq!(text(&path), "new\npromised\nlater\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_replacement_that_is_given_up_leaves_nothing() {
    let (directory, path) = database("given-up", "old\n");
    let mut file = opened(&path, 4);
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"new\n").unwrap();
    drop(replacement);
    assert!(!directory.join("conf.db.tmp").exists());
    assert_eq!(text(&path), "old\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_same_process_cannot_lock_twice_nor_lose_its_lock_by_trying() {
    let (directory, path) = database("twice", "x\n");
    let first = opened(&path, 2);
    let error = DatabaseFile::open(&path, &first.held().collect::<Vec<_>>()).unwrap_err();
    let shown = path.display();
    assert_eq!(
        error.text,
        format!("I/O error: {shown}: failed to lock lockfile (Resource deadlock avoided)")
    );
    assert_eq!(try_lock_elsewhere(&path), "refused");
    drop(first);
    assert_eq!(try_lock_elsewhere(&path), "locked");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_lock_of_another_process_is_named_by_its_pid() {
    let (directory, path) = database("other", "x\n");
    let lock = lock_path(&path);
    let script = format!(
        "import fcntl, sys\nf = open('{}', 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\n\
         print('locked', flush=True)\nsys.stdin.read()",
        lock.display()
    );
    let mut other = Command::new("python3")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = io::BufReader::new(other.stdout.take().unwrap());
    io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "locked\n");
    let error = DatabaseFile::open(&path, &[]).unwrap_err();
    let shown = path.display();
    assert_eq!(
        error.text,
        format!("I/O error: {shown}: failed to lock lockfile (Resource temporarily unavailable)")
    );
    let pid = other.id();
    assert_eq!(
        error.warnings.join("\n"),
        format!("{}: cannot lock file because it is already locked by pid {pid}", lock.display())
    );
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_cannot_be_opened_is_said_in_the_words_of_the_reference() {
    let (directory, _) = database("missing", "");
    let path = directory.join("nothing.db");
    let error = DatabaseFile::open(&path, &[]).unwrap_err();
    let expected =
        format!("I/O error: {}: open failed (No such file or directory)", path.display());
    assert_eq!(error.text, expected);
    fs::create_dir(&path).unwrap();
    let error = DatabaseFile::open(&path, &[]).unwrap_err();
    assert_eq!(error.text, format!("I/O error: {}: open failed (Is a directory)", path.display()));
    fs::remove_dir_all(directory).unwrap();
}

/// Whether a process of its own could lock the database.
fn try_lock_elsewhere(path: &Path) -> String {
    let script = format!(
        "import fcntl\nf = open('{}', 'w')\ntry:\n fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n \
         print('locked', end='')\nexcept OSError:\n print('refused', end='')",
        lock_path(path).display()
    );
    let output = Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn after_a_failed_sync_nothing_is_appended_until_the_file_is_replaced() {
    let (directory, path) = database("suspect", "");
    let mut file = opened(&path, 0);
    file.append(b"before\n", false).unwrap();
    // A device that takes writes and refuses fdatasync(2).
    let device = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let good = file.exchange(device);
    assert_eq!(file.append(b"durable\n", true), Err("Invalid argument".to_owned()));
    assert!(file.is_suspect());
    file.exchange(good);
    assert_eq!(file.append(b"more\n", false), Err("Input/output error".to_owned()));
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"all\n").unwrap();
    replacement.sync().unwrap();
    file.replace(replacement, b"", false).unwrap();
    assert!(!file.is_suspect());
    file.append(b"more\n", true).unwrap();
    assert_eq!(text(&path), "all\nmore\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn room_is_kept_behind_the_end_and_does_not_count() {
    use std::os::unix::fs::MetadataExt;
    let (directory, path) = database("room", "");
    let mut file = opened(&path, 0);
    file.append_keeping_room(b"entry\n", false).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(text(&path), "entry\n");
    // A file system that keeps no room keeps only what is written.
    if !file.room.is_unknown() {
        assert!(metadata.blocks() * 512 >= 6 + ROOM_BYTES, "{}", metadata.blocks());
    }
    // A disk that is full by now: what is urgent is in the room that is there.
    file.room.fill();
    let full = Err("No space left on device".to_owned());
    assert_eq!(file.append_keeping_room(b"another entry\n", false), full);
    file.append_keeping_room(b"vote\n", true).unwrap();
    assert_eq!(text(&path), "entry\nvote\n");
    file.room.forget();
    file.append_keeping_room(b"entry\n", false).unwrap();
    assert_eq!(text(&path), "entry\nvote\nentry\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn room_is_kept_behind_a_file_that_has_just_taken_anothers_place() {
    use std::os::unix::fs::MetadataExt;
    let (directory, path) = database("room-again", "");
    let mut file = opened(&path, 0);
    file.keep_room();
    let mut replacement = file.replacement().unwrap();
    replacement.write(b"compact\n").unwrap();
    file.replace(replacement, b"", false).unwrap();
    assert_eq!(text(&path), "compact\n");
    if !file.room.is_unknown() {
        let blocks = fs::metadata(&path).unwrap().blocks();
        assert!(blocks * 512 >= ROOM_BYTES, "{blocks}");
    }
    fs::remove_dir_all(directory).unwrap();
}
