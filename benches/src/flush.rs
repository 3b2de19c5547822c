//! Counting the flushes that reach the disks, from the kernel's own books.

/// The 16th statistic of a line in `/proc/diskstats`, after major, minor and name: flush requests completed.
const FLUSH_COLUMN: usize = 3 + 15;

/// Flushes that all disks have completed since start-up; `None` where the kernel does not count them.
pub fn flushes() -> Option<u64> {
    sum(&std::fs::read_to_string("/proc/diskstats").ok()?)
}

fn sum(stats: &str) -> Option<u64> {
    let count = |line: &str| {
        let mut columns = line.split_whitespace();
        let name = columns.nth(2)?;
        let virtual_disk = ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
        // Two of the remaining columns were taken with the name.
        let flushes: u64 = columns.nth(FLUSH_COLUMN - 3)?.parse().ok()?;
        (!virtual_disk).then_some(flushes)
    };
    stats.lines().filter_map(count).reduce(|sum, flushes| sum + flushes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_real_disks_are_summed() {
        let stats = "   7  0 loop0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 99 17\n \
                     254  0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 40 17\n \
                     254 16 vdb 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 2 17\n";
        assert_eq!(sum(stats), Some(42));
        assert_eq!(sum("254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n"), None);
    }
}
