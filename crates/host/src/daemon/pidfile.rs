//! The pid file: locked for as long as the process lives (ovsdb-server(1), "Daemon Options").

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use weir_net::error::strerror;

use crate::vlog::{Level, Vlog};

/// A pid file of this process, removed on drop unless somebody else has put another in its place.
#[derive(Debug)]
pub(crate) struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Writes and locks the file.
    ///
    /// # Errors
    /// Another process has it locked (not asked if `overwrite`), or it cannot be written: the text
    /// for standard error.
    pub(crate) fn create(path: &Path, overwrite: bool, log: &Vlog) -> Result<Self, String> {
        if !overwrite {
            refuse_second(path, log)?;
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let failed = |what: &str, e: io::Error| {
            format!("{}: {what} ({})", temporary.display(), strerror(&e))
        };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o666);
        let mut file = options.open(&temporary).map_err(|e| failed("create failed", e))?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed("fcntl failed", e.into()))?;
        file.set_len(0).map_err(|e| failed("truncate failed", e))?;
        writeln!(file, "{}", std::process::id()).map_err(|e| failed("write failed", e))?;
        fs::rename(&temporary, path).map_err(|e| {
            format!(
                "failed to rename \"{}\" to \"{}\" ({})",
                temporary.display(),
                path.display(),
                strerror(&e)
            )
        })?;
        Ok(Self { file, path: path.to_owned() })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let ours = self.file.metadata().ok().map(identity);
        if ours.is_some() && fs::metadata(&self.path).ok().map(identity) == ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An error if a living process has the file locked.
fn refuse_second(path: &Path, log: &Vlog) -> Result<(), String> {
    let failed = |error: &io::Error| {
        format!("{}: pidfile check failed ({}), aborting", path.display(), strerror(error))
    };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let text = format!("{}: open: {}", path.display(), strerror(&error));
            log.log("daemon_unix", Level::Warn, &text);
            return Err(failed(&error));
        }
    };
    match fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)) {
        Ok(Some(Flock { pid: Some(pid), .. })) => {
            Err(format!("{}: already running as pid {pid}, aborting", path.display()))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(failed(&error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_this_process_and_goes_with_it() {
        let name = format!("weir-pidfile-{}.pid", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "stale, not locked\n").unwrap();
        let pidfile = PidFile::create(&path, false, &Vlog::new("test")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(pidfile);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_a_missing_directory_is_an_error() {
        let error = PidFile::create(Path::new("/nonexistent/x.pid"), false, &Vlog::new("test"))
            .unwrap_err();
        assert_eq!(error, "/nonexistent/x.pid.tmp: create failed (No such file or directory)");
    }
}
