//! `--user=USER[:GROUP]`: what root started goes on as somebody else.

use std::ffi::CString;
use std::os::unix::fs::chown;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User, getgid, getuid, initgroups, setgid, setgroups, setuid};

use crate::program::Failure;

/// The user and groups that the process is to become.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    uid: Uid,
    gid: Gid,
    /// Whose further groups to take on.
    name: Option<String>,
}

/// Becomes that user for good; the open log file is handed over, for rotation to work. Must be
/// called while the process has one thread.
pub(super) fn become_user(spec: &str, log_file: Option<&Path>) -> Result<(), Failure> {
    let identity = look_up(spec)?;
    let Identity { uid, gid, .. } = identity;
    if uid == getuid() && gid == getgid() {
        return Ok(());
    }
    if let Some(path) = log_file.filter(|path| path.exists()) {
        chown(path, Some(uid.as_raw()), Some(gid.as_raw()))
            .map_err(|error| Failure::io(format!("{}: chown failed", path.display()), &error))?;
    }
    switch(&identity).map_err(|errno| {
        let error = std::io::Error::from(errno);
        Failure::io(format!("--user={spec}: cannot become this user"), &error)
    })
}

fn switch(identity: &Identity) -> nix::Result<()> {
    match identity.name.as_deref().map(CString::new) {
        Some(Ok(name)) => initgroups(&name, identity.gid)?,
        _ => setgroups(&[identity.gid])?,
    }
    setgid(identity.gid)?;
    setuid(identity.uid)
}

/// `USER`, `USER:GROUP` or `:GROUP`; an empty part is what the process has already.
fn look_up(spec: &str) -> Result<Identity, Failure> {
    let (user, group) = spec.split_once(':').unwrap_or((spec, ""));
    let missing = |what: &str, name: &str| {
        Failure::new(format!("--user={spec}: {what} {name} not found, aborting."))
    };
    let mut identity = Identity { uid: getuid(), gid: getgid(), name: None };
    if !user.is_empty() {
        let found = User::from_name(user).ok().flatten().ok_or_else(|| missing("user", user))?;
        identity = Identity { uid: found.uid, gid: found.gid, name: Some(user.to_owned()) };
    }
    if !group.is_empty() {
        let found = Group::from_name(group).ok().flatten();
        let found = found.ok_or_else(|| missing("group", group))?;
        let name = if user.is_empty() { own_name() } else { user.to_owned() };
        if found.gid != identity.gid && !found.mem.contains(&name) {
            return Err(Failure::new(format!(
                "Invalid --user option {spec} (user {name} is not in group {group}), aborting."
            )));
        }
        identity.gid = found.gid;
    }
    Ok(identity)
}

/// The name of this process's user.
fn own_name() -> String {
    User::from_uid(getuid()).ok().flatten().map(|user| user.name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(spec: &str) -> String {
        look_up(spec).err().map(|failure| failure.text).unwrap_or_default()
    }

    #[test]
    fn names_are_looked_up() {
        let root = look_up("root").ok().map(|identity| (identity.uid, identity.gid));
        assert_eq!(root, Some((Uid::from_raw(0), Gid::from_raw(0))));
        assert_eq!(look_up("").ok().map(|identity| identity.uid), Some(getuid()));
        assert_eq!(look_up(":root").ok().map(|identity| identity.gid), Some(Gid::from_raw(0)));
    }

    #[test]
    fn a_group_must_have_the_user() {
        let foreign = "Invalid --user option root:nogroup (user root is not in group nogroup), \
                       aborting.";
        let text = failure("root:nogroup");
        // Not every system has that group.
        assert!(text == foreign || text.contains("group nogroup not found"), "{text}");
    }

    #[test]
    fn unknown_names_are_fatal() {
        assert_eq!(
            failure("no-such-user"),
            "--user=no-such-user: user no-such-user not found, aborting."
        );
        assert_eq!(
            failure("root:no-such"),
            "--user=root:no-such: group no-such not found, aborting."
        );
    }
}
