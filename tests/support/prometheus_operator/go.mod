module bwagent.test/prometheus-operator

go 1.24

// Its CRDs only: nothing is built from it.
require github.com/prometheus-operator/prometheus-operator v0.85.0
