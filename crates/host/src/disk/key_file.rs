//! The file beside a database file that says which keys are declared (`docs/decisions/018`):
//! `.NAME.weir-keys`.
//!
//! It is replaced as a whole. Nothing that anybody is told depends on it: where it cannot be read or
//! written, the server runs without.

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use weir_net::error::strerror;

use super::directory::Directory;
use super::side_file::{create, hidden, open};

/// More of the file is not read, in bytes: it is none then.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// What the file beside `target` has in it, if it can be read.
pub fn read_keys(target: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open(&key_path(target)).ok()?;
    file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Puts `text` into the file beside `target`, or removes that, and waits for the disk. A new file
/// has the mode and, as far as the system lets us, the owner of `like`. One that is there and cannot be opened to be read
/// stays: nobody knows which keys would be lost with it.
///
/// # Errors
/// As strerror(3) puts it; the file is then as it was.
pub fn write_keys(target: &Path, like: &Metadata, text: Option<&[u8]>) -> Result<(), String> {
    let path = key_path(target);
    let changed = match text {
        Some(text) => match open(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => replace(target, &path, like, text),
        },
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    };
    changed.and_then(|()| Directory::of(&path).sync()).map_err(|error| strerror(&error))
}

/// Has the file beside `new` what that beside `old` has. What cannot be carried over is not there.
pub(super) fn carry(old: &Path, new: &Path) {
    let (Some(text), Ok(like)) = (read_keys(old), fs::metadata(key_path(old))) else { return };
    let _ = write_keys(new, &like, Some(&text));
}

fn replace(target: &Path, path: &Path, like: &Metadata, text: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(target);
    let written = create(&temporary, like).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Where a new file is until it is whole: one that is there when `target` is opened was left by a process that ended.
pub(super) fn temporary_path(target: &Path) -> PathBuf {
    target.with_file_name(hidden(target, ".weir-keys.tmp"))
}

fn key_path(target: &Path) -> PathBuf {
    target.with_file_name(hidden(target, ".weir-keys"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A database file in a folder of its own, and what is known of it.
    fn file(name: &str) -> (PathBuf, Metadata) {
        let name = format!("weir-keys-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let target = folder.join("net.db");
        fs::write(&target, "").expect("a file");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("a mode");
        let like = fs::metadata(&target).expect("it is there");
        (target, like)
    }

    /// How many files there are beside a database file, and that one.
    fn count(target: &Path) -> usize {
        fs::read_dir(target.parent().expect("a folder")).expect("it is there").count()
    }

    #[test]
    fn the_file_is_replaced_as_a_whole_and_goes_when_nothing_is_declared() {
        let (target, like) = file("replaced");
        assert_eq!(read_keys(&target), None);
        for text in [&b"first"[..], b"second"] {
            write_keys(&target, &like, Some(text)).expect("it can be written");
            assert_eq!(read_keys(&target).as_deref(), Some(text));
        }
        let path = target.with_file_name(".net.db.weir-keys");
        let mode = fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        for _ in 0..2 {
            write_keys(&target, &like, None).expect("it can be removed, or is not there");
            assert_eq!(count(&target), 1);
        }
        fs::remove_dir_all(target.parent().expect("a folder")).expect("it can be removed");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let (target, like) = file("kept");
        // Nothing can take the place of a folder.
        fs::create_dir(target.with_file_name(".net.db.weir-keys")).expect("a folder");
        assert_eq!(write_keys(&target, &like, Some(b"keys")), Err("not a regular file".to_owned()));
        assert_eq!(count(&target), 2);
        assert_eq!(read_keys(&target), None);
        fs::remove_dir_all(target.parent().expect("a folder")).expect("it can be removed");
    }

    /// Opening a FIFO to read would wait for somebody who writes.
    #[test]
    fn a_fifo_is_no_key_file() {
        let (target, like) = file("fifo");
        let path = target.with_file_name(".net.db.weir-keys");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils");
        assert!(made.success());
        assert_eq!(read_keys(&target), None);
        assert_eq!(write_keys(&target, &like, Some(b"keys")), Err("not a regular file".to_owned()));
        assert_eq!(count(&target), 2, "nothing takes the place of what cannot be read");
        fs::remove_dir_all(target.parent().expect("a folder")).expect("it can be removed");
    }
}
