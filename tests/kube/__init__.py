"""Tests over a real Kubernetes API server."""
