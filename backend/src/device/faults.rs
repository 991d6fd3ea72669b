//! Faults that wait for the driver (SPEC.md §7).

use super::context::JobKey;
use crate::mmu::Fault;
use std::collections::{BTreeMap, HashMap, VecDeque};
use uma_protocol::fault::{FaultRecord, FaultResponse};
use uma_protocol::{AsidHandle, HUGE_SHIFT};

/// A record and the jobs that wait for its response.
pub struct Pending {
    /// As delivered.
    pub record: FaultRecord,
    /// Jobs in the order of their faults.
    pub waiting: Vec<JobKey>,
}

/// How a job's fault was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filed {
    /// A new record.
    New,
    /// It joined a record of the same block.
    Joined,
    /// The table is full: the job is filed again when a record ends.
    Overflow,
}

/// The pending faults of a device.
pub struct FaultTable {
    max: usize,
    records: BTreeMap<u64, Pending>,
    /// Record of each (address space, 2 MiB block).
    blocks: HashMap<(AsidHandle, u64), u64>,
    undelivered: VecDeque<u64>,
    /// Jobs that found the table full; at most as many as there are jobs.
    overflow: VecDeque<JobKey>,
    overflowed: bool,
    last_sequence: u64,
}

impl FaultTable {
    /// A table of at most `max` records.
    pub fn new(max: u32) -> Self {
        Self {
            max: max as usize,
            records: BTreeMap::new(),
            blocks: HashMap::new(),
            undelivered: VecDeque::new(),
            overflow: VecDeque::new(),
            overflowed: false,
            last_sequence: 0,
        }
    }

    /// Records that wait for a response.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Files the fault of a job.
    pub fn file(&mut self, asid: AsidHandle, fault: &Fault, job: JobKey, job_id: u64, eu: u32) -> Filed {
        let block = (asid, fault.va >> HUGE_SHIFT);
        if let Some(pending) = self.blocks.get(&block).and_then(|sequence| self.records.get_mut(sequence)) {
            pending.waiting.push(job);
            return Filed::Joined;
        }
        if self.records.len() >= self.max {
            self.overflow.push_back(job);
            self.overflowed = true;
            return Filed::Overflow;
        }
        self.last_sequence += 1;
        let record = FaultRecord {
            asid,
            va: fault.va,
            sequence: self.last_sequence,
            job: job_id,
            access: fault.access.bits(),
            cause: fault.cause as u16,
            eu: eu as u16,
            reserved: 0,
            pages_wanted: 1,
            reserved1: 0,
        };
        self.records.insert(record.sequence, Pending { record, waiting: vec![job] });
        self.blocks.insert(block, record.sequence);
        self.undelivered.push_back(record.sequence);
        Filed::New
    }

    /// Takes up to `max` records that have not been delivered, and whether the table has run over since the last call.
    pub fn take_batch(&mut self, max: usize) -> (Vec<FaultRecord>, bool) {
        let mut batch = Vec::new();
        while batch.len() < max {
            let Some(sequence) = self.undelivered.pop_front() else { break };
            batch.extend(self.records.get(&sequence).map(|pending| pending.record));
        }
        let overflowed = !batch.is_empty() && std::mem::take(&mut self.overflowed);
        (batch, overflowed)
    }

    /// Whether records wait for a buffer.
    pub fn has_undelivered(&self) -> bool {
        !self.undelivered.is_empty()
    }

    /// Ends the record that `response` names; `None` if there is none any more, or it is another address space's.
    pub fn answer(&mut self, response: &FaultResponse) -> Option<Pending> {
        let pending = self.records.get(&response.sequence)?;
        if pending.record.asid != response.header.asid {
            return None;
        }
        self.remove(response.sequence)
    }

    /// Jobs that found the table full and may file again now that a record has ended.
    pub fn take_overflow(&mut self) -> Option<JobKey> {
        if self.records.len() >= self.max {
            return None;
        }
        self.overflow.pop_front()
    }

    /// Forgets a job that waits.
    pub fn forget_job(&mut self, job: JobKey) {
        self.overflow.retain(|key| *key != job);
        for pending in self.records.values_mut() {
            pending.waiting.retain(|key| *key != job);
        }
    }

    /// Forgets every record of an address space. The sequences are never used again, so late responses are stale.
    pub fn forget_asid(&mut self, asid: AsidHandle) {
        let gone: Vec<u64> =
            self.records.iter().filter(|(_, pending)| pending.record.asid == asid).map(|(key, _)| *key).collect();
        for sequence in gone {
            self.remove(sequence);
        }
    }

    fn remove(&mut self, sequence: u64) -> Option<Pending> {
        let pending = self.records.remove(&sequence)?;
        self.blocks.remove(&(pending.record.asid, pending.record.va >> HUGE_SHIFT));
        // A driver that guesses a sequence can answer what was not delivered.
        self.undelivered.retain(|other| *other != sequence);
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uma_protocol::fault::{Access, FaultCause};
    use uma_protocol::RequestHeader;

    const ASID: AsidHandle = AsidHandle { index: 1, generation: 1 };

    fn fault(va: u64) -> Fault {
        Fault { va, access: Access::READ, cause: FaultCause::NotPresent }
    }

    fn response(sequence: u64) -> FaultResponse {
        FaultResponse { header: RequestHeader { asid: ASID, ..Default::default() }, sequence, ..Default::default() }
    }

    #[test]
    fn faults_of_a_block_are_one_record() {
        let mut table = FaultTable::new(8);
        assert_eq!(table.file(ASID, &fault(0x20_0000), 1, 1, 0), Filed::New);
        assert_eq!(table.file(ASID, &fault(0x3f_f000), 2, 2, 0), Filed::Joined);
        assert_eq!(table.file(ASID, &fault(0x40_0000), 3, 3, 0), Filed::New);
        let (batch, overflowed) = table.take_batch(8);
        assert_eq!(batch.iter().map(|record| record.va).collect::<Vec<_>>(), [0x20_0000, 0x40_0000]);
        assert!(!overflowed);
        assert_eq!(table.answer(&response(batch[0].sequence)).unwrap().waiting, [1, 2]);
        assert!(table.answer(&response(batch[0].sequence)).is_none());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn overflow_is_said_once_and_nothing_is_lost() {
        let mut table = FaultTable::new(1);
        table.file(ASID, &fault(0), 1, 1, 0);
        assert_eq!(table.file(ASID, &fault(0x20_0000), 2, 2, 0), Filed::Overflow);
        assert_eq!(table.take_overflow(), None);
        let (batch, overflowed) = table.take_batch(8);
        assert!(overflowed);
        table.answer(&response(batch[0].sequence)).unwrap();
        assert_eq!(table.take_overflow(), Some(2));
        assert_eq!(table.file(ASID, &fault(0x20_0000), 2, 2, 0), Filed::New);
        assert!(!table.take_batch(8).1);
    }

    #[test]
    fn an_address_space_takes_its_records_along() {
        let mut table = FaultTable::new(8);
        table.file(ASID, &fault(0), 1, 1, 0);
        table.forget_asid(ASID);
        assert_eq!(table.len(), 0);
        assert!(!table.has_undelivered());
        assert!(table.answer(&response(1)).is_none());
    }
}
