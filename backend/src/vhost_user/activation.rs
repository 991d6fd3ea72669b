//! Whether queues that start again belong to the same guest (docs/architecture.md, *Sessions*).
//!
//! The frontend says only that queues stop (GET_VRING_BASE) and start. A pause sends SET_VRING_BASE with the value that
//! GET_VRING_BASE returned, a guest reset sends 0.

use super::backend::Memory;
use crate::device::Start;
use vhost_user_backend::VringT;
use virtio_queue::QueueT;

/// The vrings of this daemon.
pub type Vring = vhost_user_backend::VringMutex<Memory>;

/// Where a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    next_avail: u16,
    size: u16,
    desc: u64,
    avail: u64,
    used: u64,
}

impl Position {
    /// As the queue stands now.
    pub fn of(vring: &Vring) -> Self {
        let state = vring.get_ref();
        let queue = state.get_queue();
        Self {
            next_avail: queue.next_avail(),
            size: queue.size(),
            desc: queue.desc_table(),
            avail: queue.avail_ring(),
            used: queue.used_ring(),
        }
    }
}

/// Where the queues stopped.
#[derive(Debug, Default)]
pub struct Stopped(Vec<Option<Position>>);

impl Stopped {
    /// Remembers a queue that stopped.
    pub fn record(&mut self, queue: usize, position: Position) {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, None);
        }
        self.0[queue] = Some(position);
    }

    /// Forgets everything: the next start is a fresh one.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How the queues start: `now` holds a position for each that is ready.
    pub fn compare(&self, now: &[Option<Position>]) -> Start {
        let at = |queue: usize| self.0.get(queue).copied().flatten();
        let used = at(0).is_some_and(|control| control.next_avail != 0);
        let same = now.iter().enumerate().all(|(queue, position)| at(queue) == *position);
        if used && same {
            Start::Resume
        } else {
            Start::Fresh
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Position = Position { next_avail: 5, size: 256, desc: 0x1000, avail: 0x2000, used: 0x3000 };

    fn stopped(positions: &[Position]) -> Stopped {
        let mut stopped = Stopped::default();
        for (queue, position) in positions.iter().enumerate() {
            stopped.record(queue, *position);
        }
        stopped
    }

    #[test]
    fn a_pause_resumes() {
        assert_eq!(stopped(&[AT, AT]).compare(&[Some(AT), Some(AT)]), Start::Resume);
    }

    #[test]
    fn everything_else_is_fresh() {
        let zero = Position { next_avail: 0, ..AT };
        let moved = Position { used: 0x4000, ..AT };
        assert_eq!(Stopped::default().compare(&[Some(AT)]), Start::Fresh);
        assert_eq!(stopped(&[AT]).compare(&[Some(zero)]), Start::Fresh);
        assert_eq!(stopped(&[AT]).compare(&[Some(moved)]), Start::Fresh);
        assert_eq!(stopped(&[AT, AT]).compare(&[Some(AT), None]), Start::Fresh);
        assert_eq!(stopped(&[AT]).compare(&[Some(AT), Some(AT)]), Start::Fresh);
        // The control queue was never used: there is no session to go on with.
        assert_eq!(stopped(&[zero, AT]).compare(&[Some(zero), Some(AT)]), Start::Fresh);
    }
}
