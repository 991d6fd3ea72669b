//! The way back: replies into descriptor segments, chains into the used ring.

use super::activation::Vring;
use crate::device::{Device, Ticket, Transport};
use crate::memory::control_word::write_bytes;
use crate::trace::Limited;
use std::sync::{Arc, Weak};
use vhost_user_backend::VringT;

/// The used rings of one connection.
pub struct Rings {
    vrings: Vec<Vring>,
    device: Weak<Device>,
    lost: Limited,
}

impl Rings {
    /// Rings of the queues in order. `device` knows the guest's memory; it holds the rings, so they hold it weakly.
    pub fn new(vrings: &[Vring], device: &Arc<Device>) -> Self {
        Self { vrings: vrings.to_vec(), device: Arc::downgrade(device), lost: Limited::default() }
    }
}

impl Transport for Rings {
    fn complete(&self, ticket: &Ticket, reply: &[u8]) {
        let (Some(vring), Some(device)) = (self.vrings.get(usize::from(ticket.queue)), self.device.upgrade()) else {
            return;
        };
        let table = device.memory();
        let mut rest = reply;
        let mut written = 0;
        for (gpa, len) in &ticket.segments[..usize::from(ticket.count)] {
            let (piece, left) = rest.split_at(rest.len().min(*len as usize));
            if write_bytes(&table, *gpa, piece).is_err() {
                self.lost.warn("a reply's buffer left guest memory");
                break;
            }
            written += piece.len() as u32;
            rest = left;
        }
        let mut state = vring.get_mut();
        if state.add_used(ticket.head, written).is_err() {
            self.lost.warn("a used ring could not be written");
            return;
        }
        // Without an answer from the guest's memory it is signalled once too often rather than not at all.
        if state.needs_notification().unwrap_or(true) {
            let _ = state.signal_used_queue();
        }
    }
}
