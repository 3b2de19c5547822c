//! Which objects are being read, so that none is deleted under a reader.

use crate::types::ObjectId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Counts the readers of each object; clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Pins(Arc<Mutex<HashMap<ObjectId, usize>>>);

/// One reader of one object, until it is dropped.
#[derive(Debug)]
#[must_use = "a pin holds as long as it is kept"]
pub struct Pin {
    pins: Pins,
    id: ObjectId,
}

impl Pins {
    /// Pins an object.
    pub fn pin(&self, id: ObjectId) -> Pin {
        *self.0.lock().entry(id).or_default() += 1;
        Pin { pins: self.clone(), id }
    }

    /// Whether somebody reads the object.
    pub fn is_pinned(&self, id: ObjectId) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// How many objects are being read.
    pub fn pinned(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.0.lock();
        if let Some(count) = pins.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_pinned_until_its_last_reader_is_gone() {
        let (pins, id) = (Pins::default(), ObjectId { epoch: 1, counter: 2 });
        let (first, second) = (pins.pin(id), pins.pin(id));
        drop(first);
        assert!(pins.is_pinned(id));
        assert!(!pins.is_pinned(ObjectId { epoch: 1, counter: 3 }));
        drop(second);
        assert_eq!((pins.is_pinned(id), pins.pinned()), (false, 0));
    }
}
