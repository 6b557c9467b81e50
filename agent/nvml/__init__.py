"""NVML: the GPUs' fabric state and the NVLink domain."""
