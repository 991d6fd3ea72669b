//! Descriptor chains to typed requests: knows virtqueues and the device, not vhost-user.

pub mod chain;

use crate::device::{Device, Ticket};
use crate::memory::RegionTable;
use chain::{ChainFault, Taken};
use uma_protocol::queues::QueueRole;
use uma_protocol::reply::ReplyHeader;
use uma_protocol::Status;
use zerocopy::IntoBytes;

/// What became of a chain.
#[derive(Debug, PartialEq, Eq)]
pub enum Handed {
    /// The device has it and answers it.
    Device,
    /// It is refused: answer it with these bytes (none if it has no room for a reply).
    Refused(Vec<u8>),
}

/// Hands a chain of a queue with `role` to the device.
pub fn hand_over(device: &Device, role: QueueRole, table: &RegionTable, ticket: &Ticket, taken: &Taken) -> Handed {
    if let Some(fault) = taken.fault {
        return refuse(ticket, fault);
    }
    if role == QueueRole::Fault {
        if taken.readable > 0 {
            return refuse(ticket, ChainFault::Malformed);
        }
        device.fault_buffer(*ticket);
        return Handed::Device;
    }
    if ticket.capacity() < size_of::<ReplyHeader>() {
        return Handed::Refused(Vec::new());
    }
    let Ok(request) = taken.read(table) else {
        return refuse(ticket, ChainFault::Outside);
    };
    match role {
        QueueRole::Control => device.control(*ticket, &request),
        QueueRole::Invalidate => device.invalidate(*ticket, &request),
        QueueRole::MigrateUrgent => device.migrate(*ticket, &request, true),
        QueueRole::MigrateBulk => device.migrate(*ticket, &request, false),
        QueueRole::FaultResponse => device.fault_response(*ticket, &request),
        QueueRole::Compute => device.submit(*ticket, &request),
        QueueRole::Fault => {}
    }
    Handed::Device
}

fn refuse(ticket: &Ticket, fault: ChainFault) -> Handed {
    if ticket.capacity() < size_of::<ReplyHeader>() {
        return Handed::Refused(Vec::new());
    }
    let status = match fault {
        ChainFault::Malformed => Status::BadLength,
        ChainFault::Outside => Status::BadAddress,
    };
    Handed::Refused(ReplyHeader::new(status, 0, 0).as_bytes().to_vec())
}
