//! The recorded id of a state: the hashes of all records of a file, folded into one.

use weir_data::Uuid;

use crate::ids::into_version_4;

/// The SHA-1 of a record, as the file has it.
pub type RecordHash = [u8; 20];

/// An odd number, so that no bit of what is behind is lost: 2^128 over the golden ratio.
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// What names the state behind a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// The chain, taken on by the hash of the change's record.
    Hash(RecordHash),
    /// The id of the change's entry in a cluster's log.
    Entry(Uuid),
}

/// What stands behind a record for all records up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain(u128);

impl Chain {
    /// The chain behind a file's first record, the schema.
    pub fn of_schema(hash: RecordHash) -> Self {
        Self(leading_bits(&hash))
    }

    /// What stands in the chain's place where states are named by the entries of a cluster's log:
    /// nothing of what comes before one.
    pub fn of_entry(id: Uuid) -> Self {
        Self(id.to_u128())
    }

    /// The chain behind a change.
    #[must_use]
    pub fn behind(self, name: Name) -> Self {
        match name {
            Name::Hash(hash) => self.then(hash),
            Name::Entry(id) => Self::of_entry(id),
        }
    }

    /// The chain behind the next record.
    #[must_use]
    pub fn then(self, hash: RecordHash) -> Self {
        Self(self.0.wrapping_mul(FACTOR).wrapping_add(leading_bits(&hash)))
    }

    /// The id of the state behind the record.
    pub fn id(self) -> Uuid {
        into_version_4(self.0)
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

/// What some records of a file do to whatever chain stands before them.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    factor: u128,
    sum: u128,
}

impl Default for Stretch {
    fn default() -> Self {
        Self { factor: 1, sum: 0 }
    }
}

impl Stretch {
    /// With one more record at the end.
    #[must_use]
    pub fn then(self, hash: RecordHash) -> Self {
        let sum = self.sum.wrapping_mul(FACTOR).wrapping_add(leading_bits(&hash));
        Self { factor: self.factor.wrapping_mul(FACTOR), sum }
    }

    /// The chain that stands before the records, from that behind them.
    pub fn before(self, end: Chain) -> Chain {
        // An odd number is its own inverse in its lowest three bits, and each step doubles them.
        let mut inverse = self.factor;
        for _ in 0..6 {
            let product = self.factor.wrapping_mul(inverse);
            inverse = inverse.wrapping_mul(2_u128.wrapping_sub(product));
        }
        Chain(end.0.wrapping_sub(self.sum).wrapping_mul(inverse))
    }
}

fn leading_bits(hash: &RecordHash) -> u128 {
    let bytes = hash.first_chunk().expect("a hash has 20 bytes");
    u128::from_be_bytes(*bytes)
}

/// Names the database file that a side file belongs to, by the hashes of its first two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Hash of the schema's record.
    pub schema: RecordHash,
    /// Hash of the snapshot's record.
    pub snapshot: RecordHash,
}

impl Binding {
    /// What the side file's name ends in: 16 hexadecimal digits.
    pub fn text(&self) -> String {
        let both = Chain::of_schema(self.schema).then(self.snapshot);
        format!("{:016x}", (both.0 >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_and_their_order_make_another_id() {
        let [a, b, c] = [[1; 20], [2; 20], [3; 20]];
        let chain = Chain::of_schema(a);
        let ids = [
            chain,
            chain.then(b),
            chain.then(c),
            chain.then(b).then(c),
            chain.then(c).then(b),
            Chain::of_schema(b).then(c),
        ];
        for (i, one) in ids.iter().enumerate() {
            assert!(ids[..i].iter().all(|other| other.id() != one.id()), "{ids:?}");
            let text = one.id().to_string();
            assert_eq!((&text[14..15], "89ab".contains(&text[19..20])), ("4", true), "{text}");
            assert_eq!(Chain::from_bytes(one.to_bytes()), *one);
        }
    }

    #[test]
    fn what_stands_before_records_follows_from_what_stands_behind() {
        let hashes: Vec<RecordHash> = (1..=50).map(|byte| [byte; 20]).collect();
        let start = Chain::of_schema([77; 20]);
        for n in [0, 1, 2, 50] {
            let hashes = hashes.iter().take(n).copied();
            let end = hashes.clone().fold(start, Chain::then);
            assert_eq!(hashes.fold(Stretch::default(), Stretch::then).before(end), start, "{n}");
        }
    }

    #[test]
    fn the_name_of_a_side_file_is_that_of_both_records() {
        let binding = |schema, snapshot| Binding { schema: [schema; 20], snapshot: [snapshot; 20] };
        let texts = [(1, 2), (1, 3), (2, 1)].map(|(a, b)| binding(a, b).text());
        assert!(texts.iter().all(|text| text.len() == 16), "{texts:?}");
        assert!(texts[0] != texts[1] && texts[0] != texts[2], "{texts:?}");
        assert_eq!(texts[0], binding(1, 2).text());
    }
}
