//! What tests of engines are made of: memory that moves under them, views that interrupt them, jobs, and the kernels
//! once more in the plainest form to compare with.

pub(crate) mod guest;
pub(crate) mod jobs;
pub(crate) mod memory;
pub(crate) mod reference;
pub(crate) mod runner;

/// Random numbers that a seed determines (splitmix64).
#[derive(Clone)]
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}
