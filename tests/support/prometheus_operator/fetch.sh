#!/bin/sh
# Fetch the CRDs of PodMonitor and PrometheusRule from the Go module of the Prometheus operator that go.mod pins; quick
# when they are there already. It prints the folder that the tests look into. Nothing is built.
set -eu
cd "$(dirname "$0")"
. ../go.sh
module=github.com/prometheus-operator/prometheus-operator
version=$(awk -v module=$module '$2 == module {print $3; exit}' go.mod)
cached "prometheus-operator/$version" podmonitors.yaml prometheusrules.yaml
begin "fetch the Prometheus operator"
twice go mod download $module
folder=$(go mod download -json $module | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
for kind in podmonitors prometheusrules; do
    cp "$folder/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$work/$kind.yaml"
done
keep podmonitors.yaml prometheusrules.yaml
echo "$cache"
