//! Which of many ephemeral columns the reference names when a schema loses them: the last one as
//! its hash tables of tables and columns are walked. Nothing else depends on that order.

use weir_json::Text;

/// Bytes at a time.
const WORD: usize = 4;

/// An ephemeral column: its table and its name.
pub(super) type EphemeralColumn = (String, String);

/// The one of `ephemeral` that the reference names. The schema has this text and was read from a
/// file of its own, or it is a copy of that of a database.
pub(super) fn of<'a>(
    schema: Text<'_>,
    is_copy: bool,
    ephemeral: &'a [EphemeralColumn],
) -> Option<&'a EphemeralColumn> {
    let tables = schema.object()?.get("tables")?;
    let names = walk(walk(keys(tables)?));
    let names = if is_copy { walk(names) } else { names };
    names.iter().rev().find_map(|table| {
        let columns = tables.object()?.get(table)?.object()?.get("columns")?;
        let columns = walk(with_system_columns(walk(keys(columns)?)));
        let columns = if is_copy { walk(with_system_columns(columns)) } else { columns };
        columns.iter().rev().find_map(|column| {
            ephemeral.iter().find(|(its_table, name)| its_table == table && name == column)
        })
    })
}

fn with_system_columns(others: Vec<String>) -> Vec<String> {
    let others = others.into_iter().filter(|name| !name.starts_with('_'));
    ["_uuid", "_version"].map(str::to_owned).into_iter().chain(others).collect()
}

/// The keys of an object in the order of the text.
fn keys(object: Text<'_>) -> Option<Vec<String>> {
    let key = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    Some(object.members()?.map(|(name, _)| key(&name)).collect())
}

/// The order in which a hash table is walked after these names were inserted: bucket by bucket, in
/// a bucket the newest first. With more than two names a bucket the table grows.
fn walk(names: Vec<String>) -> Vec<String> {
    let mut buckets: Vec<Vec<String>> = vec![Vec::new()];
    for (count, name) in (1..).zip(names) {
        insert(&mut buckets, name);
        if count / 2 >= buckets.len() {
            let wanted: usize = count / 2 + 1;
            let wider = vec![Vec::new(); wanted.next_power_of_two().max(4)];
            let moved = std::mem::replace(&mut buckets, wider);
            moved.into_iter().flat_map(newest_first).for_each(|name| insert(&mut buckets, name));
        }
    }
    buckets.into_iter().flat_map(newest_first).collect()
}

fn insert(buckets: &mut [Vec<String>], name: String) {
    let mask = buckets.len() - 1;
    buckets[hash(name.as_bytes()) as usize & mask].push(name);
}

fn newest_first(bucket: Vec<String>) -> impl Iterator<Item = String> {
    bucket.into_iter().rev()
}

/// MurmurHash3 for 32 bits, but for the last bytes, which are mixed in as a whole word is.
fn hash(bytes: &[u8]) -> u32 {
    let mut hash = 0_u32;
    for chunk in bytes.chunks(WORD) {
        let mut word = [0; WORD];
        word[..chunk.len()].copy_from_slice(chunk);
        let data = u32::from_le_bytes(word).wrapping_mul(0xcc9e_2d51).rotate_left(15);
        hash = (hash ^ data.wrapping_mul(0x1b87_3593)).rotate_left(13);
        hash = hash.wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
