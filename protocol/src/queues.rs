//! Virtqueue roles (SPEC.md §2).

use crate::all_zero;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A run of virtqueues that share one role.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueRun {
    /// Index of the first queue.
    pub first: u16,
    /// How many queues follow each other; 0 = the role is absent.
    pub count: u16,
}

impl QueueRun {
    /// Returns whether queue `index` belongs to this run.
    pub const fn contains(&self, index: u16) -> bool {
        index >= self.first && index - self.first < self.count
    }

    /// Index just behind the run.
    pub const fn end(&self) -> u32 {
        self.first as u32 + self.count as u32
    }
}

/// Which queue has which role. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueRoles {
    /// Control requests.
    pub control: QueueRun,
    /// Invalidate requests.
    pub invalidate: QueueRun,
    /// Migrate requests of CPU faults, eviction and release.
    pub migrate_urgent: QueueRun,
    /// Migrate requests of device faults and prefetch.
    pub migrate_bulk: QueueRun,
    /// Empty buffers that the device fills with fault records.
    pub fault: QueueRun,
    /// Fault responses.
    pub fault_response: QueueRun,
    /// Jobs.
    pub compute: QueueRun,
    /// Must be zero.
    pub reserved: QueueRun,
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueRole {
    /// Control requests.
    Control,
    /// Invalidate requests.
    Invalidate,
    /// Urgent migrate requests.
    MigrateUrgent,
    /// Bulk migrate requests.
    MigrateBulk,
    /// Fault records, device to driver.
    Fault,
    /// Fault responses, driver to device.
    FaultResponse,
    /// Jobs.
    Compute,
}

impl QueueRoles {
    /// The layout of SPEC.md §2: six single queues, then `compute` compute queues.
    pub const fn standard(compute: u16) -> Self {
        const fn one(first: u16) -> QueueRun {
            QueueRun { first, count: 1 }
        }
        Self {
            control: one(0),
            invalidate: one(1),
            migrate_urgent: one(2),
            migrate_bulk: one(3),
            fault: one(4),
            fault_response: one(5),
            compute: QueueRun { first: 6, count: compute },
            reserved: QueueRun { first: 0, count: 0 },
        }
    }

    /// The runs with their roles, in the order of the wire.
    pub const fn runs(&self) -> [(QueueRole, QueueRun); 7] {
        [
            (QueueRole::Control, self.control),
            (QueueRole::Invalidate, self.invalidate),
            (QueueRole::MigrateUrgent, self.migrate_urgent),
            (QueueRole::MigrateBulk, self.migrate_bulk),
            (QueueRole::Fault, self.fault),
            (QueueRole::FaultResponse, self.fault_response),
            (QueueRole::Compute, self.compute),
        ]
    }

    /// Role of queue `index`, or `None` if no run holds it.
    pub fn role(&self, index: u16) -> Option<QueueRole> {
        self.runs().into_iter().find(|(_, run)| run.contains(index)).map(|(role, _)| role)
    }

    /// Number of queues, that is one more than the highest index in use.
    pub fn total(&self) -> u32 {
        self.runs().iter().map(|(_, run)| run.end()).max().unwrap_or(0)
    }

    /// Returns whether every role that a driver needs is there, no two runs overlap and reserved fields are zero.
    pub fn is_valid(&self) -> bool {
        let runs = self.runs();
        let present = runs.iter().all(|(role, run)| run.count > 0 || *role == QueueRole::Invalidate);
        let apart = runs.iter().enumerate().all(|(i, (_, a))| {
            runs.iter().skip(i + 1).all(|(_, b)| {
                a.count == 0 || b.count == 0 || a.end() <= u32::from(b.first) || b.end() <= u32::from(a.first)
            })
        });
        present && apart && all_zero(&self.reserved)
    }
}
