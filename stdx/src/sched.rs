//! How the kernel schedules the calling thread. A hint: every refusal of the kernel is ignored.
//!
//! Unsafe, beside `mmap`, because neither the standard library nor a crate of ours reaches these calls;
//! docs/decisions/0002 has the measurement that pays for it.
#![allow(unsafe_code, reason = "two system calls that take plain numbers and one struct of ours")]

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for a time slice of `slice_us` and niceness `nice` for the calling thread; true if the kernel agreed.
///
/// A short slice lets a thread that slept in `fdatasync` run again before a busy thread's slice ends: an
/// earlier virtual deadline wins. It needs no privilege as long as `nice` does not fall.
pub fn shape_thread(slice_us: u32, nice: i32) -> bool {
    let Ok(size) = u32::try_from(size_of::<SchedAttr>()) else { return false };
    let wanted = SchedAttr { size, nice, runtime_ns: u64::from(slice_us) * 1000, ..SchedAttr::default() };
    // SAFETY: the kernel reads `size` bytes of a live, fully initialised struct and writes nothing; pid 0 is the
    // calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    answer == 0
}

/// Lets the threads that wait for this processor run first. Whoever does much that nobody waits for calls it between pieces
/// of some 100 microseconds: niceness alone does not do that, a nice thread runs for milliseconds with what it is owed from
/// before. Costs a system call.
pub fn give_way() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_be_made_nicer_and_goes_on() {
        std::thread::Builder::new().spawn(|| shape_thread(100, 5)).unwrap().join().unwrap();
    }
}
