//! Randomness from a seed.

/// splitmix64
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in so many times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
