//! New database files: locked, created, written and synced as the reference does it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use weir_host::{LockError, LockFile, lock_path};

use super::beside::Beside;

/// The longest chain of symbolic links that is followed.
const LINKS_MAX: usize = 10;

/// Why there is no new file.
#[derive(Debug)]
pub(crate) struct CreateError {
    /// What failed, in the words of the reference: `create failed`.
    pub(crate) step: &'static str,
    /// The system's error.
    pub(crate) error: io::Error,
    /// Lines for the log, module `lockfile`.
    pub(crate) warnings: Vec<String>,
}

impl CreateError {
    fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { step, error, warnings: vec![] }
    }
}

impl From<LockError> for CreateError {
    fn from(LockError { error, warnings }: LockError) -> Self {
        Self { step: "failed to lock lockfile", error, warnings }
    }
}

/// Creates a database file with this content and syncs it. Nothing may be there, a dangling
/// symbolic link aside, whose target is created. The name comes last: a beginning of the content
/// could pass for a database that a crash has torn.
pub(crate) fn create(name: &Path, content: &[u8]) -> Result<(), CreateError> {
    let path = follow_links(name);
    let _lock = LockFile::lock(&lock_path(&path), &[])?;
    if path.symlink_metadata().is_ok() {
        return Err(CreateError::at("create failed")(Errno::EXIST.into()));
    }
    let mut file = Beside::create(&path, None).map_err(CreateError::at("create failed"))?;
    file.write(content).and_then(|()| file.sync()).map_err(CreateError::at("write failed"))?;
    file.take_name(&path).map_err(CreateError::at("create failed"))
}

/// The name's target, whether or not it exists.
pub(crate) fn follow_links(name: &Path) -> PathBuf {
    let mut path = name.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or(target.clone(), |folder| folder.join(&target));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::strerror;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A folder that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("weir-cli-{}-{test}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_file_is_for_owner_and_group() {
        let scratch = Scratch::new("mode");
        let path = scratch.0.join("a.db");
        create(&path, b"content").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & !0o660, 0, "{mode:o}");
        assert!(scratch.0.join(".a.db.~lock~").exists());
    }

    #[test]
    fn nothing_is_overwritten() {
        let scratch = Scratch::new("exists");
        let path = scratch.0.join("a.db");
        std::fs::write(&path, b"old").unwrap();
        let error = create(&path, b"new").unwrap_err();
        assert_eq!((error.step, strerror(&error.error).as_str()), ("create failed", "File exists"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn what_came_meanwhile_is_not_overwritten() {
        let scratch = Scratch::new("meanwhile");
        let path = scratch.0.join("a.db");
        let file = Beside::create(&path, None).unwrap();
        std::fs::write(&path, b"old").unwrap();
        let error = file.take_name(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn the_target_of_a_dangling_link_is_created() {
        let scratch = Scratch::new("link");
        symlink("target.db", scratch.0.join("link.db")).unwrap();
        create(&scratch.0.join("link.db"), b"content").unwrap();
        assert_eq!(std::fs::read(scratch.0.join("target.db")).unwrap(), b"content");
        assert!(scratch.0.join(".target.db.~lock~").exists());
    }

    #[test]
    fn a_missing_folder_is_a_failed_lock() {
        let error = create(Path::new("/nonexistent/a.db"), b"").unwrap_err();
        assert_eq!(error.step, "failed to lock lockfile");
        assert_eq!(
            error.warnings,
            [
                "/nonexistent/.a.db.~lock~: failed to open lock file: No such file or directory",
                "/nonexistent/.a.db.~lock~: failed to lock file: No such file or directory",
            ]
        );
    }
}
