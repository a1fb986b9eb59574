//! The directories that Open vSwitch's programs share: Debian's places, or the environment's.

use std::path::{Path, PathBuf};

use weir_host::recording::Recording;

/// Where sockets and files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dirs {
    /// Sockets and pid files: `OVS_RUNDIR`.
    pub(crate) run: PathBuf,
    /// Log files: `OVS_LOGDIR`.
    pub(crate) log: PathBuf,
    /// Databases: `OVS_DBDIR`, or `openvswitch` in `OVS_SYSCONFDIR`.
    pub(crate) db: PathBuf,
    /// Schemas: `OVS_PKGDATADIR`.
    pub(crate) pkgdata: PathBuf,
}

/// `--record` or `--replay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordingMode {
    /// `--record`: what comes in is written down.
    Record,
    /// `--replay`: what came in is taken from a recording.
    Replay,
}

impl Dirs {
    /// The directories that the environment of this process names.
    pub(crate) fn from_env() -> Self {
        Self::new(|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// The directories that an environment names; an empty variable counts as missing.
    fn new(variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.as_os_str().is_empty());
        let dir = |name, default| variable(name).unwrap_or_else(|| PathBuf::from(default));
        let configured = variable("OVS_SYSCONFDIR").map(|dir| dir.join("openvswitch"));
        Self {
            run: dir("OVS_RUNDIR", "/var/run/openvswitch"),
            log: dir("OVS_LOGDIR", "/var/log/openvswitch"),
            db: variable("OVS_DBDIR")
                .or(configured)
                .unwrap_or_else(|| PathBuf::from("/etc/openvswitch")),
            pkgdata: dir("OVS_PKGDATADIR", "/usr/share/openvswitch"),
        }
    }

    /// The database of a command line that names none.
    pub(crate) fn default_database(&self) -> PathBuf {
        self.db.join("conf.db")
    }

    /// Where recordings are, by the option about them.
    pub(crate) fn recording(&self, option: &Option<(RecordingMode, Option<String>)>) -> Recording {
        let Some((mode, directory)) = option else { return Recording::Off };
        let directory = directory.as_ref().map_or(self.run.clone(), |name| self.run.join(name));
        match mode {
            RecordingMode::Record => Recording::Record(directory),
            RecordingMode::Replay => Recording::Replay(directory),
        }
    }

    /// The schema of a `create` that names none.
    pub(crate) fn default_schema(&self) -> PathBuf {
        self.pkgdata.join("vswitch.ovsschema")
    }
}

/// A file name against the current directory, without touching the file system otherwise.
pub(crate) fn absolute(path: &str) -> std::io::Result<PathBuf> {
    let path = Path::new(path);
    if path.is_absolute() { Ok(path.to_owned()) } else { Ok(std::env::current_dir()?.join(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(variables: &[(&str, &str)]) -> Dirs {
        Dirs::new(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn debian_without_an_environment() {
        let dirs = dirs(&[]);
        assert_eq!(dirs.run, Path::new("/var/run/openvswitch"));
        assert_eq!(dirs.log, Path::new("/var/log/openvswitch"));
        assert_eq!(dirs.default_database(), Path::new("/etc/openvswitch/conf.db"));
        assert_eq!(dirs.default_schema(), Path::new("/usr/share/openvswitch/vswitch.ovsschema"));
    }

    #[test]
    fn the_environment_wins() {
        let both = dirs(&[("OVS_SYSCONFDIR", "/s"), ("OVS_DBDIR", "/d"), ("OVS_RUNDIR", "/r")]);
        assert_eq!((both.run.as_path(), both.db.as_path()), (Path::new("/r"), Path::new("/d")));
        assert_eq!(dirs(&[("OVS_SYSCONFDIR", "/s")]).db, Path::new("/s/openvswitch"));
        assert_eq!(dirs(&[("OVS_DBDIR", "")]).db, Path::new("/etc/openvswitch"));
    }
}
