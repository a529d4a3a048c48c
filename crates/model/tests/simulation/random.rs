//! The only source of chance, and the fingerprint of what came of it.

/// A seeded generator (SplitMix64). Written out, so that a seed means the same with every version of every library.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another one.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.draw() % end.max(1) as u64) as usize
    }

    pub(crate) fn ms(&mut self, range: std::ops::Range<i64>) -> i64 {
        range.start + (self.draw() % (range.end - range.start) as u64) as i64
    }

    /// Whether something happens that happens so often in a hundred times.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    pub(crate) fn maybe<T>(&mut self, percent: u64, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
        self.percent(percent).then(|| value(self))
    }
}

/// A hash over all that happened (FNV-1a): equal for equal histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn new() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, word: i64) {
        self.0 = (self.0 ^ word as u64).wrapping_mul(0x0100_0000_01b3);
    }
}
