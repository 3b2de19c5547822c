//! Reading what lies in objects.
//!
//! Every byte handed out was checked against its block's checksum.

use super::Pins;
use crate::state::{Piece, Source};
use crate::tier::{BLOCK_BYTES, Footer, ObjectError, Objects, TierError, verify};
use crate::types::{ObjectId, Stored};
use bytes::Bytes;

/// Why bytes of an object cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColdError {
    /// The store did not give them.
    #[error("read from the object store")]
    Tier(#[from] TierError),
    /// They are not what was stored.
    #[error("bytes of an object")]
    Object(#[from] ObjectError),
}

impl ColdError {
    /// Whether the object is not there: its bytes lie elsewhere by now, or are not wanted any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Tier(TierError::NotFound { .. }))
    }
}

/// Reads the objects of one container; clones share everything.
#[derive(Clone, Debug)]
pub struct ColdReader {
    objects: Objects,
    pins: Pins,
}

impl ColdReader {
    /// A reader of these objects that pins what it reads.
    pub fn new(objects: Objects, pins: Pins) -> Self {
        Self { objects, pins }
    }

    /// The name of an object in its store.
    pub fn name_of(&self, id: ObjectId) -> String {
        self.objects.path(id).to_string()
    }

    /// Reads up to `bytes_max` bytes, at least one, of an extent from `offset` of its segment on.
    ///
    /// # Errors
    /// [`ColdError`] if the store cannot give them or they are damaged.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read(&self, piece: &Piece, offset: u64, bytes_max: usize) -> Result<Vec<Bytes>, ColdError> {
        let Source::Extent { stored, skip } = piece.source else { unreachable!("only extents are cold") };
        let _pin = self.pins.pin(stored.object);
        let from = u64::from(skip) + (offset - piece.offset);
        let to = (u64::from(skip) + piece.length).min(from + bytes_max as u64);
        let block = u64::from(BLOCK_BYTES);
        let first = from / block;
        let end = (to.div_ceil(block) * block).min(u64::from(stored.length));
        let footer = self.footer(&stored).await?;
        let at = u64::from(stored.at) + first * block;
        let blocks = self.objects.range(stored.object, at, end - first * block).await?;
        verify(&stored, footer.as_ref(), u32::try_from(first).unwrap_or(u32::MAX), &blocks)?;
        let bytes = |n: u64| usize::try_from(n - first * block).unwrap_or(usize::MAX);
        Ok(vec![blocks.slice(bytes(from)..bytes(to))])
    }

    /// The first append boundary of an extent at or after `target`, as far as its object tells; else its end.
    ///
    /// # Errors
    /// [`ColdError`] if the store cannot give the object's footer, or it is damaged.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn boundary(&self, piece: &Piece, target: u64) -> Result<u64, ColdError> {
        let Source::Extent { stored, skip } = piece.source else { unreachable!("only extents are cold") };
        let _pin = self.pins.pin(stored.object);
        let Some(footer) = self.footer(&stored).await? else { return Ok(piece.end()) };
        let boundaries = footer.range_of(&stored).map(|range| &range.boundaries[..]).unwrap_or_default();
        let offsets = boundaries.iter().filter_map(|at| at.checked_sub(skip)).map(u64::from);
        let found = offsets.map(|at| piece.offset + at).find(|at| *at >= target && *at < piece.end());
        Ok(found.unwrap_or(piece.end()))
    }

    /// The footer of the object, if the range needs one.
    async fn footer(&self, stored: &Stored) -> Result<Option<Footer>, ColdError> {
        if stored.length <= BLOCK_BYTES {
            return Ok(None);
        }
        Ok(Some(self.objects.footer(stored.object).await?))
    }
}
