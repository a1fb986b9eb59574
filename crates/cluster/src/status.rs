//! How a member does, in the words of `cluster/status` (ovsdb-server(1)).

use weir_data::Uuid;

/// What people call a server: the file name of a unix socket's address up to its first dot, else the
/// first four digits of its id.
pub(crate) fn nickname(id: Uuid, address: Option<&str>) -> String {
    let of_file = address.and_then(|address| address.strip_prefix("unix:")).and_then(|path| {
        let name = path.rsplit('/').next()?;
        name.split('.').next().filter(|name| !name.is_empty())
    });
    of_file.map_or_else(|| crate::member::short(id), str::to_owned)
}
