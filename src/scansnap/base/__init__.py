"""What belongs to no other room: errors, checks, options, memory, threads, devices, progress, compiled code."""
