//! Seams to the machine: clock, chance, disk, net, gate and byte budget.
