//! Runs P4_16 programs for TNA without hardware.
