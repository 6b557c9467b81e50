#!/bin/sh
# Fetch the CRDs of PodMonitor and PrometheusRule from the Go module of the Prometheus operator that go.mod pins; quick
# when they are there already. It prints the folder that the tests look into. Nothing is built.
set -eu
cd "$(dirname "$0")"
module=github.com/prometheus-operator/prometheus-operator
version=$(awk -v module=$module '$2 == module {print $3; exit}' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/prometheus-operator/$version

if [ -f "$cache/podmonitors.yaml" ] && [ -f "$cache/prometheusrules.yaml" ]; then
    echo "$cache"
    exit
fi
command -v go >/dev/null || { echo "there is no Go to fetch the Prometheus operator with" >&2; exit 1; }

folder=$(go mod download -json $module | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for kind in podmonitors prometheusrules; do
    cp "$folder/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$work/$kind.yaml"
    mv -f "$work/$kind.yaml" "$cache/"
done
echo "$cache"
