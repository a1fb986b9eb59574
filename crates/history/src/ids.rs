//! Places of the log, the two kinds of ids, and the id that names the process and a place in it.

use weir_data::Uuid;

/// How many changes have been pushed: the state behind the last one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Place(pub u64);

/// Places from here on are in no side file: a server does not get that far.
pub(crate) const PLACE_END: u64 = 1 << 61;

/// The bits of a UUID that say that it is a random one (RFC 4122 section 4.4).
const VERSION_MASK: u128 = 0xf << 76 | 3 << 62;
const VERSION_4: u128 = 4 << 76 | 2 << 62;

/// Bits of a volatile id that are the place; the variant stands above them.
const PLACE_MASK: u64 = (1 << 62) - 1;

pub(crate) fn into_version_4(bits: u128) -> Uuid {
    Uuid::from_u128(bits & !VERSION_MASK | VERSION_4)
}

/// The volatile id of a place: 60 bits of the nonce, 62 of the place.
pub(crate) fn volatile_id(nonce: u64, place: Place) -> Uuid {
    into_version_4(u128::from(nonce) << 64 | u128::from(place.0))
}

/// The place that a volatile id of this process names.
pub(crate) fn volatile_place(nonce: u64, id: Uuid) -> Option<Place> {
    let place = Place(id.to_u128() as u64 & PLACE_MASK);
    (volatile_id(nonce, place) == id).then_some(place)
}

/// What stands for the `_version` of a row that a change made or modified: never zero, and of no
/// two places the same.
pub(crate) fn version_at(place: Place) -> Uuid {
    Uuid::from_u128(u128::from(place.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volatile_id_is_understood_by_its_own_process_only() {
        for place in [0, 1, 0xffff_ffff, PLACE_END].map(Place) {
            let id = volatile_id(u64::MAX, place);
            assert_eq!(volatile_place(u64::MAX, id), Some(place));
            assert_eq!(volatile_place(1, id), None);
            assert_eq!(&id.to_string()[14..15], "4");
        }
        assert_eq!(volatile_place(1, Uuid::ZERO), None);
    }
}
