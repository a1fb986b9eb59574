//! How fast clients ask: in each second in another way, which follows from the seed and the time alone.
//! Some mistakes need a server that is never without a request, some one that nothing happens to.

use weir_testkit::rng::Rng;

/// How long a tempo lasts, in microseconds.
const TEMPO_US: u64 = 1_000_000;

/// What clients do between an answer and the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tempo {
    /// Clients ask for nothing.
    Quiet,
    /// Clients think for much longer than a request takes.
    Leisurely,
    /// Clients think for about as long as a request takes.
    Steady,
    /// Clients ask again as soon as they are answered.
    Unbroken,
}

/// How likely each is, of a hundred.
const LIKELY: [usize; 4] = [39, 50, 8, 3];

impl Tempo {
    /// The tempo at a time, of a run in which it changes.
    pub(crate) fn at(seed: u64, now_us: u64) -> Self {
        let second = now_us / TEMPO_US;
        let mut rng = Rng::new(seed ^ second.wrapping_mul(0xd6e8_feb8_6659_fd93));
        [Self::Quiet, Self::Leisurely, Self::Steady, Self::Unbroken][rng.weighted(&LIKELY)]
    }

    /// How long a client thinks at most, in microseconds.
    pub(crate) fn pause_us(self) -> usize {
        match self {
            Self::Leisurely => 600_000,
            Self::Quiet | Self::Steady => 40_000,
            Self::Unbroken => 300,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_has_all_of_them_in_an_order_of_its_own() {
        let of = |seed| (0..200).map(move |second| Tempo::at(seed, second * TEMPO_US));
        for tempo in [Tempo::Quiet, Tempo::Leisurely, Tempo::Steady, Tempo::Unbroken] {
            assert!(of(1).any(|it| it == tempo) && of(2).any(|it| it == tempo), "{tempo:?}");
        }
        assert!(of(1).eq(of(1)) && of(1).ne(of(2)));
        assert_eq!(Tempo::at(1, 5 * TEMPO_US), Tempo::at(1, 6 * TEMPO_US - 1));
    }
}
