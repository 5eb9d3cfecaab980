"""Does a profile fit its machines? Memory, disk, steps and hours of each stage, before anything is paid."""
