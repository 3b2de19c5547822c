//! The views of a container, by name.

use super::View;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// The published segments of a container, by canonical name.
#[derive(Debug, Default)]
pub struct Views {
    by_name: RwLock<HashMap<String, Arc<View>>>,
}

impl Views {
    /// The segment of that name, if its creation is applied and its end is not.
    pub fn find(&self, name: &str) -> Option<Arc<View>> {
        self.by_name.read().get(name).cloned()
    }

    /// All segments, oldest first.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn all(&self) -> Vec<Arc<View>> {
        let mut views: Vec<_> = self.by_name.read().values().cloned().collect();
        views.sort_unstable_by_key(|view| view.id);
        views
    }

    /// Publishes a segment.
    pub(crate) fn insert(&self, view: Arc<View>) {
        self.by_name.write().insert(view.name.clone(), view);
    }

    /// Takes a segment out, unless its name belongs to a later one already.
    pub(crate) fn remove(&self, view: &View) {
        let mut by_name = self.by_name.write();
        if by_name.get(&view.name).is_some_and(|present| present.id == view.id) {
            by_name.remove(&view.name);
        }
    }

    /// Takes all segments out, when the container closes; oldest first, so that readers wake in an order that a seed
    /// repeats.
    pub(crate) fn clear(&self) -> Vec<Arc<View>> {
        let mut views: Vec<_> = self.by_name.write().drain().map(|(_, view)| view).collect();
        views.sort_unstable_by_key(|view| view.id);
        views
    }
}
