//! Seams to the machine: clock, chance, disk, net, gate and byte budget; errors in one line.
//!
//! Everything that a seed must be able to replay (time, chance, disk, net) is reached through this crate, and no
//! streaming noun ever enters it. `mmap` and `sched` are the only files of the workspace with `unsafe` in them.

pub mod budget;
pub mod chain;
pub mod clock;
pub mod crashsafe;
pub mod disk;
pub mod entropy;
pub mod gate;
pub mod mmap;
pub mod net;
pub mod retry;
pub mod sched;
pub mod sim_disk;

pub use budget::{ByteBudget, BytePermit};
pub use chain::chain;
pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::{Disk, DiskFile, DiskLock, OpenMode, RealDisk, remove_in_steps};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use gate::{Gate, GateGuard};
pub use mmap::{FileMap, MapBorrows};
pub use retry::Retry;
pub use sim_disk::SimDisk;
