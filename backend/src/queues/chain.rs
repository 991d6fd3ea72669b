//! A descriptor chain, checked before any device sees it.

use crate::device::{Ticket, MAX_REQUEST, MAX_SEGMENTS};
use crate::memory::control_word::{read_bytes, Outside};
use crate::memory::RegionTable;

/// Descriptors of one chain at most. virtio-queue already ends a chain that loops at the queue's size; this bounds
/// what an indirect table can hold.
pub const MAX_DESCRIPTORS: usize = 256;

/// Why a chain is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// Too long, too many descriptors, or a readable descriptor behind a writable one.
    Malformed,
    /// A descriptor is not in guest memory.
    Outside,
}

/// One descriptor: where, how long, and whether the device writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub len: u32,
    /// Device-writable.
    pub writable: bool,
}

/// The readable part of a chain.
#[derive(Debug, Default)]
pub struct Taken {
    pieces: Vec<(u64, u32)>,
    /// Readable bytes.
    pub readable: usize,
    /// Why the chain is refused, if it is.
    pub fault: Option<ChainFault>,
}

impl Taken {
    /// Copies the request out, each byte read once.
    ///
    /// # Errors
    /// [`Outside`] if a descriptor leaves guest memory.
    pub fn read(&self, table: &RegionTable) -> Result<Vec<u8>, Outside> {
        let mut request = vec![0; self.readable];
        let mut done = 0;
        for (gpa, len) in &self.pieces {
            let end = done + *len as usize;
            read_bytes(table, *gpa, &mut request[done..end])?;
            done = end;
        }
        Ok(request)
    }

    fn add(&mut self, ticket: &mut Ticket, piece: Piece, table: &RegionTable) -> Result<(), ChainFault> {
        if piece.len == 0 {
            return Ok(());
        }
        if piece.writable {
            let count = usize::from(ticket.count);
            if count == MAX_SEGMENTS {
                return Err(ChainFault::Malformed);
            }
            // Checked here so that a driver learns of it; checked again when the reply is written, since memory may change.
            table.resolve(piece.gpa, u64::from(piece.len)).ok_or(ChainFault::Outside)?;
            ticket.segments[count] = (piece.gpa, piece.len);
            ticket.count += 1;
            return Ok(());
        }
        if ticket.count > 0 || self.readable + piece.len as usize > MAX_REQUEST {
            return Err(ChainFault::Malformed);
        }
        self.readable += piece.len as usize;
        self.pieces.push((piece.gpa, piece.len));
        Ok(())
    }
}

/// Sorts the descriptors of the chain at `head` of `queue` into a request and the ticket that answers it. A chain that
/// is refused still gets a ticket with the writable segments that were in order.
pub fn take(queue: u16, head: u16, pieces: &[Piece], table: &RegionTable) -> (Ticket, Taken) {
    let mut ticket = Ticket { queue, head, count: 0, segments: [(0, 0); MAX_SEGMENTS] };
    let mut taken = Taken::default();
    if pieces.len() > MAX_DESCRIPTORS {
        taken.fault = Some(ChainFault::Malformed);
    }
    for piece in pieces.iter().take(MAX_DESCRIPTORS) {
        if let Err(fault) = taken.add(&mut ticket, *piece, table) {
            taken.fault.get_or_insert(fault);
        }
    }
    (ticket, taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::regions::testing::heap_region;
    use crate::memory::GuestMemory;
    use std::sync::Arc;

    fn table() -> Arc<RegionTable> {
        let memory = GuestMemory::default();
        memory.replace(vec![heap_region(0, 0x10000)]);
        memory.load()
    }

    fn piece(gpa: u64, len: u32, writable: bool) -> Piece {
        Piece { gpa, len, writable }
    }

    fn fault(pieces: &[Piece]) -> Option<ChainFault> {
        take(0, 0, pieces, &table()).1.fault
    }

    #[test]
    fn a_request_and_room_for_its_reply() {
        let pieces = [piece(0, 8, false), piece(0x100, 16, false), piece(0x200, 24, true)];
        let (ticket, taken) = take(3, 7, &pieces, &table());
        assert_eq!((ticket.queue, ticket.head, ticket.capacity()), (3, 7, 24));
        assert_eq!((taken.readable, taken.fault), (24, None));
        assert_eq!(taken.read(&table()).unwrap().len(), 24);
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(fault(&[piece(0, 8, true), piece(0, 8, false)]), Some(ChainFault::Malformed));
        assert_eq!(fault(&[piece(0, MAX_REQUEST as u32 + 1, false)]), Some(ChainFault::Malformed));
        assert_eq!(fault(&[piece(0, u32::MAX, false); 8]), Some(ChainFault::Malformed));
        assert_eq!(fault(&[piece(0, 8, true); MAX_SEGMENTS + 1]), Some(ChainFault::Malformed));
        assert_eq!(fault(&[piece(0, 1, false); MAX_DESCRIPTORS + 1]), Some(ChainFault::Malformed));
        assert_eq!(fault(&[piece(0xfff0, 0x20, true)]), Some(ChainFault::Outside));
        assert_eq!(fault(&[piece(u64::MAX, 2, true)]), Some(ChainFault::Outside));
    }

    #[test]
    fn readable_pieces_outside_are_found_when_read() {
        let (_, taken) = take(0, 0, &[piece(0xfff0, 0x20, false)], &table());
        assert!(taken.read(&table()).is_err());
    }
}
